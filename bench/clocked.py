"""Runs a command and prints its wall-clock time and peak resident memory: {"wall_s", "peak_bytes"}.

    python bench/clocked.py COMMAND...
"""

import json
import resource
import subprocess
import sys
import time

began = time.perf_counter()
done = subprocess.run(sys.argv[1:], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
wall_s = time.perf_counter() - began
if done.returncode != 0:
    sys.exit(done.returncode)
peak = 1024 * resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss
print(json.dumps({"wall_s": wall_s, "peak_bytes": peak}))
