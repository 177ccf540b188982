# bench/peers/support/timing.py -- what the peers share: medians of batches, limits of time, result lines.
#
# Clocks are those of the C side (bench/support/bench.h): CPU time for one thread, of the whole process, since libraries may
# bring threads of their own; wall clock for more.
import json
import os
import select
import signal
import subprocess
import sys
import time
from contextlib import contextmanager

QUICK = os.environ.get("WEFT_BENCH_QUICK", "0") not in ("", "0")


def middle(values):
    return sorted(values)[len(values) // 2]


def median_of(run, threads, batch=1e-3, rounds=0, warm_up=1):
    """Seconds a call: the median of batches that take `batch` seconds at least."""
    now = time.process_time if threads == 1 else time.perf_counter
    for _ in range(warm_up):
        run()

    def timed_batch(reps):
        start = now()
        for _ in range(reps):
            run()
        return now() - start

    reps = 1
    while timed_batch(reps) < batch:
        reps *= 2
    return middle([timed_batch(reps) / reps for _ in range(rounds or (5 if QUICK else 15))])


def median_on_device(batch, calls, seconds=0.5, smoke=False):
    """Microseconds of one call until its result is there, and until it has returned.

    batch(n) makes n calls and gives both for all of them. A row takes about `seconds`; smoke: one call."""
    rounds, warm_up = (1, 1) if smoke else (11, 3)
    batch(1)
    once = max(batch(1)[0], 1)
    if smoke:
        calls = 1
    else:
        calls = max(1, min(calls, int(seconds * 1e6 / (rounds + warm_up) / once)))
        rounds = max(3, min(rounds, int(seconds * 1e6 / (once * calls)) - warm_up))
    for _ in range(warm_up):
        batch(calls)
    whole, host = zip(*(batch(calls) for _ in range(rounds)))
    return middle(whole) / calls, middle(host) / calls


def line(**columns):
    """A row of script/bench_table.awk: texts and counts as they are, measurements to 4 digits."""
    print(json.dumps({k: float("%.4g" % v) if isinstance(v, float) else v for k, v in columns.items()}), flush=True)


def have(code):
    """Whether this python3 runs a statement: in a process of its own, since importing both frameworks disturbs either."""
    return subprocess.run([sys.executable, "-c", code], capture_output=True).returncode == 0


def how_it_failed(code):
    """What is to be said of a process that ended so: nothing where it went well."""
    if code < 0:
        return "killed by %s" % signal.Signals(-code).name
    return "exit status %d" % code if code else ""


def end(child):
    os.killpg(child.pid, signal.SIGKILL)  # compilers run in processes of their own
    child.wait()


@contextmanager
def started(arguments, **how):
    """A python3 with a session of its own, since `end` ends all of it, which does not outlive this process for that."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # from script/bench's `timeout`
    child = subprocess.Popen([sys.executable] + arguments, start_new_session=True, **how)
    try:
        yield child
    finally:
        if child.poll() is None:
            end(child)


def alone(arguments, limit, env, row):
    """Runs a row in a process of its own: it has the threads and the memory to itself, and may be ended.

    One that runs past `limit` seconds, or fails, is a row that says so, under the peer's name. Whether it went well."""
    with started(arguments, env=env) as child:
        try:
            failed = how_it_failed(child.wait(limit))
        except subprocess.TimeoutExpired:
            failed = "ran past %d s" % limit
    if failed:
        line(**row, failed=failed)
    return not failed


# Peers of many short rows share a process, in which a row may be the last: the parent knows it, and starts another behind it.

class Rows:
    """The child's side: which rows are still to be measured. Every row asks, in the same order each time."""

    def __init__(self, pipe, done):
        self.pipe, self.done, self.asked = int(pipe), int(done), 0

    def next(self, **row):
        self.asked += 1
        if self.asked > self.done:
            os.write(self.pipe, json.dumps(row).encode() + b"\n")
        return self.asked > self.done


def one_after_another(arguments, limit, failed_key):
    """Runs a program that makes Rows of its last two arguments. Whether all rows went well; one that did not says so."""
    done, well = 0, True
    while True:
        ours, theirs = os.pipe()
        with started(arguments + [str(theirs), str(done)], pass_fds=[theirs]) as child:
            os.close(theirs)
            asked, more, late = b"", b"begin", False
            while more and not late:
                late = not select.select([ours], [], [], limit)[0]
                more = b"" if late else os.read(ours, 1 << 16)
                asked += more
            os.close(ours)
            failed = "ran past %d s" % limit if late else how_it_failed(child.wait())
        if not failed:
            return well
        well = False
        rows = asked.splitlines()
        if not rows:  # not a row's fault, and would be so again
            print("%s: %s before its first row" % (arguments[0], failed), file=sys.stderr)
            return False
        line(**json.loads(rows[-1]), **{failed_key: failed})
        done += len(rows)
