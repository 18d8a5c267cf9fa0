"""``python -m envkit.payload.smoke ARGS``: the suite under this Python, its document on stdout."""

import json
import sys

from envkit.payload import smoke

sys.stdout.write(json.dumps(smoke.main(sys.argv[1:]), sort_keys=True) + "\n")
