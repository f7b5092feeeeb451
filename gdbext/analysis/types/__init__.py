"""What each live block is: a class by its vtable, a structure by debug info, part of a container, text, …"""
