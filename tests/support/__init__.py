"""What tests share: glibcs of other Debian suites, test programs, boards, and gdb runs."""
