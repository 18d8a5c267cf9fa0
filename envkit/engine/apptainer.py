"""Apptainer: a program in a folder or in a SIF file, as the user who starts it (apptainer-exec(1)).

A payload's run has processes, temporary files and a network of its own (none); a job has the machine's network.  GPUs
enter by --nv, with the driver's libraries that the machine's ld.so.cache names.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path

from envkit.credentials import names_secret
from envkit.engine import JobLine, Say
from envkit.engine.saved import SavedEngine
from envkit.engine.unpacked import Unpacked
from envkit.errors import UsageError, one_line
from envkit.system.proc import Completed

_SAID = re.compile(r"^(?:\x1b\[[0-9;]*m)?FATAL:(?:\x1b\[[0-9;]*m)?\s+(.+)$", re.MULTILINE)


class ApptainerEngine(SavedEngine):
    """`apptainer exec`."""

    name = "apptainer"
    program = "apptainer"
    open_to = "as this user"

    def _image(self, name: str, say: Say = lambda line: None) -> Unpacked:
        # SIF is Apptainer's own: what it holds is its matter.
        if name.endswith(".sif") and Path(name).is_file():
            return Unpacked(Path(name).resolve())
        return super()._image(name, say)

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
        given = dict(env)
        if gpus and gpus != ("all",):
            given["CUDA_VISIBLE_DEVICES"] = ",".join(gpus)
        words = [self._program if scratch else self.program, "exec", "--containall", "--no-home"]
        words += ["--nv"] if gpus else []
        if scratch is not None:
            (scratch / "work").mkdir(exist_ok=True)
            words += ["--net", "--network", "none", f"--workdir={scratch / 'work'}"]
        for at, (source, writable) in sorted(binds.items()):
            if "," in source + at or ":" in source + at:
                said = f"apptainer cannot mount a path with a comma or a colon: {one_line(source)}"
                raise UsageError(said, "mount a folder above it")
            if not source.startswith("/"):
                raise UsageError(f"apptainer has no volumes such as {one_line(source)}", "mount a folder")
            words.append(f"--bind={source}:{at}" + ("" if writable else ":ro"))
        words += [f"--pwd={workdir}"] if workdir else []
        # Its option --env takes commas for ends; a variable with this prefix is taken as it is.
        variables = {f"APPTAINERENV_{name}": value for name, value in given.items()}
        if scratch is not None:
            return JobLine((*words, str(image.root), *argv), variables)
        secrets = {name: value for name, value in variables.items() if names_secret(name.partition("_")[2])}
        shown = [f"{name}={value}" for name, value in variables.items() if name not in secrets]
        return JobLine(("env", *shown, *words, str(image.root), *argv), secrets)

    def _refused(self, done: Completed) -> str:
        found = _SAID.search(done.stderr)
        return one_line(found[1]) if found and done.exit else ""
