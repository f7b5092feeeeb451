"""A Python script in whose frames objects are, and what must be said of each."""

import ast

# What holds each object, as the frame itself says: a function that runs in another thread and in this one, a
# generator, a coroutine, and two that an exception has left.
FRAMES = """
import gc, os, signal, sys, threading
class Held: pass
truth = {}
def note(function, name, one, frame):
    function = getattr(frame.f_code, "co_qualname", function)
    truth["%s() %s, %s:%d" % (function, name, frame.f_code.co_filename, frame.f_lineno)] = id(one)
def generate():
    suspended = Held()
    yield sys._getframe(), suspended
async def coroutine():
    awaited = Held()
    await Pause(awaited)
class Pause:
    def __init__(self, one): self.one = one
    def __await__(self):
        yield self.one
def fail():
    inner = Held()
    raise ValueError
def cached():
    outer = Held()
    fail()
frames = []
class Worker:
    def run(self, argument):
        local = Held()
        def closure(): return argument
        frames.append(sys._getframe())
        ready.release()
        gate.acquire()
ready, gate = threading.Lock(), threading.Lock()
ready.acquire(), gate.acquire()
threading.Thread(target=Worker().run, args=(Held(),), daemon=True).start()
ready.acquire()
frame = frames.pop()
note("run", "local", frame.f_locals["local"], frame)
running = generate()
frame, held = next(running)
note("generate", "suspended", held, frame)
task = coroutine()
note("coroutine", "awaited", task.send(None), task.cr_frame)
try:
    cached()
except ValueError as error:
    last_error = error
    outer = error.__traceback__.tb_next
    for name, local, frame in ("cached", "outer", outer.tb_frame), ("fail", "inner", outer.tb_next.tb_frame):
        note(name, local, frame.f_locals[local], frame)
    truth["ValueError.__traceback__"] = id(error.__traceback__)
    truth["traceback.tb_next"], truth["traceback.tb_frame"] = id(outer), id(outer.tb_frame)
    del outer
del frame, held
def main():
    mine = Held()
    note("main", "mine", mine, sys._getframe())
    with open(sys.argv[1], "w") as out: out.write(repr(truth))
    gc.disable(), os.write(1, b"parked"), end()  # rests
def end(): signal.pause() if len(sys.argv) < 3 else os.abort()
main()
"""


def check_frames(session, folder):
    """Hold what is said of each object to what the script knows; types of C have no names in a core alone."""
    rests = next(number for number, line in enumerate(FRAMES.splitlines(), 1) if line.endswith("# rests"))
    for text, address in ast.literal_eval((folder / "truth").read_text()).items():
        if text.startswith("main()"):
            text = f"{text.rpartition(':')[0]}:{rests}"
        text = text if "()" in text else text[text.index(".") :]
        places = [row.place for row in session.run(f"blocks refs {address:#x} --interior").data.references]
        assert any(text in place for place in places), (text, places)
        if "()" in text:
            places = [step.place for step in session.run(f"blocks path {address:#x} --roots 8").data.steps]
            assert any(text in place for place in places), (text, places)
