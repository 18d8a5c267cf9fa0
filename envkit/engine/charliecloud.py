"""Charliecloud: a program in a folder, in a user namespace of its own and without any help of root (ch-run(1)).

A run sees the machine's network, processes, /dev and /proc; its root is read-only, and its /tmp its own.  What is
mounted for it can be written to, as far as this user may: ch-run mounts nothing read-only.  GPUs are those of the
machine's /dev; the driver's libraries are not in an image until `ch-fromhost` has put them there.
"""

from __future__ import annotations

import os
import pwd
import re
from collections.abc import Mapping, Sequence
from pathlib import Path

from envkit.credentials import names_secret
from envkit.engine import JobLine
from envkit.engine.saved import SavedEngine, in_folder
from envkit.engine.unpacked import Unpacked
from envkit.errors import Undecided, UsageError, one_line
from envkit.system.proc import Completed

# What a shell of this machine may hold that would steer the programs of another system.
_OF_THIS_MACHINE = ("LD_*", "PYTHON*", "CONDA*", "VIRTUAL_ENV", "TMPDIR")
_MOUNTED = ("/etc/passwd", "/etc/group", "/etc/hosts", "/etc/resolv.conf")  # over what ch-run puts this machine's
_SAID = re.compile(r"^ch-run\[\d+\]: error: (?:can't execve\(2\): )?(.+?)(?: \(ch\S*\.c:\d+[ \d]*\))?$", re.MULTILINE)


class CharliecloudEngine(SavedEngine):
    """`ch-run`."""

    name = "charliecloud"
    program = "ch-run"
    open_to = "with the machine's network and processes"

    def _environment(self) -> dict[str, str]:
        # ch-run does not start without it.
        return {**os.environ, "USER": os.environ.get("USER") or _account()}

    def _line(
        self,
        image: Unpacked,
        argv: Sequence[str],
        env: Mapping[str, str],
        binds: Mapping[str, tuple[str, bool]],
        workdir: str,
        user: str,
        gpus: tuple[str, ...],
        scratch: Path | None,
    ) -> JobLine:
        if gpus and image.ours:
            raise Undecided(
                "charliecloud gives an image no driver's libraries, so that it would compute on no GPU",
                "unpack it (`ch-convert`), put them in (`ch-fromhost --nvidia DIR`), and name that folder as the image",
            )
        for name in _MOUNTED if image.ours else ():
            image.mount_point(name, folder=False)
        given = dict(env)
        if gpus and gpus != ("all",):
            given["CUDA_VISIBLE_DEVICES"] = ",".join(gpus)
        for at, (source, writable) in binds.items():
            if not writable and scratch is None:
                said = f"charliecloud cannot mount {source} read-only at {at}"
                raise UsageError(said, "leave :ro out, or use --engine podman")
            if not source.startswith("/"):
                raise UsageError(f"charliecloud has no volumes such as {one_line(source)}", "mount a folder")
            image.mount_point(at, folder=not os.path.isfile(source))
        words = [self._program if scratch else self.program, "--private-tmp", "--env-no-expand"]
        secrets = {name: value for name, value in given.items() if names_secret(name)}
        if scratch is None:
            words += [f"--unset-env={glob}" for glob in _OF_THIS_MACHINE]
            words += [f"--set-env={name}={value}" for name, value in given.items() if name not in secrets]
        else:
            if bad := next((name for name, value in given.items() if "\n" in value), ""):
                raise UsageError(f"the value of {bad} has more than one line, which ch-run cannot hand on", "unset it")
            lines = "".join(f"{name}={value}\n" for name, value in given.items())
            words += ["--unset-env=*", f"--set-env={in_folder(scratch, 'environment', lines)}"]
        for at, (source, _) in sorted(binds.items()):
            words.append(f"--bind={source}:{at}")
        if workdir:
            words.append(f"--cd={workdir}")
        uid, _, gid = user.partition(":")
        if uid.isdecimal() and int(uid) != os.getuid():
            words.append(f"--uid={uid}")
        if gid.isdecimal() and int(gid) != os.getgid():
            words.append(f"--gid={gid}")
        extra = {"USER": self._environment()["USER"]} if "USER" not in os.environ else {}
        return JobLine((*words, str(image.root), "--", *argv), {**extra, **(secrets if scratch is None else {})})

    def _refused(self, done: Completed) -> str:
        found = _SAID.search(done.stderr)
        return one_line(found[1]) if found and done.exit else ""


def _account() -> str:
    try:
        return pwd.getpwuid(os.getuid()).pw_name
    except KeyError:
        return f"uid{os.getuid()}"
