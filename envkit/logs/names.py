"""Errors that a program names by their enumerator or by their number alone, in whatever it prints them.

``tables/error_kind.jsonl`` says which failure each is.  CUDA's numbers stand there; their names, the driver's and the
runtime's, are those of the facts.  The numbers of other libraries stand for their names
(``tables/library_number.jsonl``, and ``tables/status.jsonl`` for those that mean more than a name).  A number counts
only behind words that say whose it is: a call of the library, the type of its result, or "CUDA error".
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path

from envkit import facts
from envkit.facts.rows import read_table_once
from envkit.logs.codes import LibraryNumberRow, OldCodeRow, status
from envkit.logs.records import Role, Signature
from envkit.records import dataclass

_TABLES = Path(__file__).parent / "tables"

ANCHORS = (
    "cudaerror", "cuda_error_", "hiperror", "ncclunhandledcudaerror", "ncclremoteerror", "ncclsystemerror",
    "ncclinternalerror", "ncclinvalidusage", "cusolver_status_", "cusparse_status_", "curand_status_", "cufft_",
    "nvrtc_error_", "cutensor_status_", "nvjpeg_status_", "hipblas_status_", "rocblas_status_", "optix_error_",
    "vk_error_", "nv_enc_err_",
    # of numbers
    "cuda error", "cuda failure", "cuda driver", "cuda runtime", "cuda api", "cuda call", "cuda return", "cuda failed",
    "cuda status", "cuda_status", "cuda init", "hip error", "hip return", "curesult", "cuinit", ".cu:", ".cuh:",
    "panic: cuda", "fatal: cuda", "error: cuda", "failed: cuda",
    "cumem", "cuctx", "cudevice", "custream", "cumodule", "culaunch", "cuevent", "culibrary", "cugraph", "call to cu",
    "cudamalloc", "cudamem", "cudadevice", "cudastream", "cudalaunch", "cudaget", "cudaset", "cudafree", "cudaevent",
    "cudahost", "cudagraph", "cudathread", "hipmalloc", "hipmem", "hipdevice", "hipstream", "hiplaunch", "hipget",
    "hipset", "hipmodule", "hipinit", "hipevent", "hipfree", "hiphost", "hipgraph", "hiperror_t", "hip status",
    "hip_status", "hipstatus", "hip failure", "hip call", "cuvid",
    "cufft", "cusparse", "cusolver", "curand", "nvrtc", "nvml", "nvjpeg", "optix", "cutensor", "cublas", "cudnn",
    "nccl error", "nccl failure", "nccl call", "nccl status", "nccl_status", "nccl returned", "nccl failed",
    "ncclresult", "ncclcomm", "ncclall", "ncclgroup", "ncclsend", "ncclrecv", "ncclreduce", "ncclbroadcast", "ncclget",
)  # fmt: skip
"""Stretches, in small letters, one of which every line holds that names an error so."""

# what escapes an end of a line within a string is no part of a name
_NAME = (
    r"(?:(?<!\w)|(?<=\\[nrt]))(?P<name>(?:(?:cudaError|hipError)[A-Z]\w{2,60}|nccl[A-Z]\w{1,40}(?:Error|Usage))"
    r"|(?:CUDA_ERROR|CUFFT|NVRTC_ERROR|OPTIX_ERROR|VK_ERROR|NV_ENC_ERR"
    r"|(?:CUSOLVER|CUSPARSE|CURAND|CUTENSOR|NVJPEG|HIPBLAS)_STATUS)_[A-Z]\w{2,60}|rocblas_status_[a-z]\w{2,60})\b"
)
_LIBRARY = r"cufft|cusparse|cusolver|curand|nvrtc|nvml|nvjpeg|optix|cutensor|cublas|cudnn|nccl|hip"
_NUMBER = r"(?P<{}>0x[0-9a-fA-F]{{1,4}}|\d{{1,4}})(?![.:]?\w)"
# a number that goes on as a count does is none: "returned 2 devices", "2 of 3", "2%"
_WHOLE = r"(?! ?[%/]| (?!(?:in|at|from|on|for|while|when|after|during|with|is|was|and|by) )[A-Za-z])"
_GAP = r"[ :=#(\[\"'>,-]{1,4}"
_CALL = rf"\b(?:(?:cuda|cuvid|{_LIBRARY})[A-Z]\w{{2,40}}|cu(?!da)[A-Z]\w{{2,40}})(?:\([^()\n]{{0,80}}\))?"
_SAYS = r"(?:an? |with )?(?:error|err|code|status|ret|rc|result|failed|returned)"
_NUMBERED = "|".join(
    (
        # "CUDA error 35", "CUDA driver API error: 0x2bc", "CUDA call failed with error code 2"
        rf"(?i:\b(?:cuda|{_LIBRARY})(?: runtime| driver)?(?: api)?(?: call)?"
        r" (?:error|failure|failed(?: with)?|returned)"
        rf"(?: (?:an )?error)?(?: code| number| status)?){_GAP}{_NUMBER.format('error')}{_WHOLE}",
        r"(?i:\bcuda error\b.{0,60}?\berror code[ :=]{1,2})" + _NUMBER.format("told") + _WHOLE,
        # "cudaMalloc failed: 2", "call=cuInit ret=999", "cuMemAlloc() returned error code 2"
        rf"(?P<call>{_CALL})(?P<says>(?:{_GAP}{_SAYS}\b){{1,4}}){_GAP}{_NUMBER.format('called')}{_WHOLE}",
        # "cuInit: 803", "cuLaunchKernel() = 700", "cudaGetDeviceCount -> 35"
        rf"(?:\bcuInit(?:\(\w{{0,8}}\))?|{_CALL}(?:(?<=\)) ?=(?!=)| ?[=-]>))[ :=]{{1,3}}"
        rf"{_NUMBER.format('gave')}{_WHOLE}",
        # "[700] Call to cuMemcpyHtoD results in", as Numba says it
        rf"\[{_NUMBER.format('numba')}\] Call to cu\w{{2,40}} results in",
        # "CUresult(700)", "cudaError_t 35", "CudaError(209)", "CUDA status 802", {"cuda_status": 802}
        rf"(?:\b(?:CUresult|[Cc]udaError(?:_t)?|(?i:{_LIBRARY})(?:[Ee]rror_t|[Rr]esult(?:_t)?|[Rr]eturn_t|Status(?:_t)?))"
        rf"|(?i:\b(?:cuda|{_LIBRARY})[ _]status(?: code)?))[\"']?"
        rf"{_GAP}{_NUMBER.format('typed')}{_WHOLE}",
        # "sync failed (cudaStreamSynchronize: 716)"
        rf"(?i:\bfail\w{{0,4}}) ?\({_CALL}[:,=] {{0,2}}{_NUMBER.format('within')}\)",
        # "pool.cu:88: driver status 802", "launch error 719 at step.cu:88": a place in a file of CUDA's own language
        rf"\.cuh?:\d{{1,5}}[\]):]{{0,2}} [^\n]{{0,40}}?\b(?i:error|status|rc|ret|code)[ :=]{{1,3}}"
        rf"{_NUMBER.format('placed')}{_WHOLE}",
        rf"\b(?i:error|status)[ :=]{{1,3}}{_NUMBER.format('behind')}\)? (?:in|at|from) \S{{1,200}}\.cuh?:\d",
        # "libcuda init failure: 803", "cuda driver init failed" code=803, "panic: cuda: 46"
        r"(?i:\b(?:lib)?cuda(?: driver)?(?: library)? init\w{0,12} (?:fail\w{0,4}|error))[\"',:;=( ]{1,4}"
        rf"(?i:(?:code|rc|status|error|ret)[ :=]{{1,2}})?{_NUMBER.format('begun')}{_WHOLE}",
        rf"(?i:\b(?:panic|fatal|error|failed): cuda): {_NUMBER.format('raised')}{_WHOLE}",
    )
)
# enumerators of the libraries, those too that a signature knows
_ENUMERATOR = re.compile(
    r"(?:cuda|hip)Error[A-Z]\w{2,60}|nccl[A-Z]\w{2,40}|rocblas_status_\w{2,60}"
    r"|(?:CUDA|NVRTC|NVML|NVJITLINK|CUPTI|OPTIX|VK)_ERROR_\w{2,60}|NV_ENC_ERR_\w{2,60}"
    r"|(?:CU[A-Z]{2,12}|NVJPEG|HIPBLAS)_STATUS_\w{2,60}|CUFFT_[A-Z]\w{2,40}"
)
# where any of them can begin, which is asked first: few places of a text are
_BEGIN = r"(?=(?i:[chnefsplorv.\[]))(?:(?<!\w)|(?<=\\[nrt])|(?=[.\[]))"
_FOUND = re.compile(f"{_BEGIN}(?:{_NAME}|{_NUMBERED})")
_OUTLINE = re.compile(f"{_BEGIN}(?:{_NAME}|{_NUMBERED})", re.IGNORECASE)
_GROUPS = ("error", "told", "called", "gave", "numba", "typed", "within", "placed", "behind", "begun", "raised")
_COUNTS = 34  # below it a number that is not called an error's may be a count, or yes and no
_NO_DEVICE = 100  # a round number too
_PLAIN = ("err", "code", "fail")
_GETS = re.compile(r"(?:cu|hip|nv|nccl|optix)\w{0,20}Get(?P<what>\w{1,20})")
_OF_LIBRARY = re.compile(rf"(?i)(?:fail\w{{0,4}} ?\()?(?P<library>{_LIBRARY})")

# keys of settings and of what was before, and how source code declares what it names
_SETTING = re.compile(
    r"(?i)ignor|retr[iy]|allow|expect|skip|known|prev|last|prior|exampl|sampl|default|filter|handl|mask|match|pattern"
    r"|only|test|option|flag|descr|doc|help|note|comment|fix|mock|inject|on_|^(?:name|title|label|env)$"
)
_VALUE = re.compile(
    r"(?P<before>(?:^|[\s{\[(,;|]))(?P<mark>\\?[\"']?)(?P<key>[A-Za-z_][\w.-]{0,60})(?P=mark)\s?(?P<to>[:=])\s?\\?[\"']$"
)
_DECLARED = re.compile(r"\b(?:const|let|var|static|char|auto|constexpr|final|String|str)\b[\s*&]{0,3}$")
# lines of source code, commands and variables, names of tests
_SOURCE = re.compile(
    r"\s*(?:[-+] )?(?:(?:case|#\s?define|except|throw|enum|import|const|static|constexpr|typedef|using)\b"
    r"|(?:catch|if|switch) ?\(|return \S{0,20}$)"
)
_COMPARES = re.compile(r"(?:[=!]=|\b(?:is|is not|not in)) ?[\"'(]?$")
_COMMAND = re.compile(r"\s*(?:git )?(?:grep|rg|ag|ack|sed|awk|find)\s")
_VARIABLE = re.compile(r"(?:^|\s)[A-Z][A-Z0-9_]{2,60}=[\"']?$")
_OF_A_TEST = re.compile(r"\s*\[ {0,9}(?:RUN|OK|PASSED|SKIPPED|DISABLED|FAILED) {0,9}\]")
_ENUMERATED = re.compile(r"\s{0,9}=\s{0,4}(?:0x[\da-fA-F]+|\d+)\s?,")
# what a manual says of an error, and what was made, awaited or mended
_DESCRIBED = re.compile(
    r"[`'\")\]*]{0,3},? (?:(?:is|are) (?:returned|thrown|raised|reported|given|set|defined|an?|the|what|no)\b"
    r"|(?:may|can|will|should|means|indicates|occurs|happens|denotes)\b)"
)
_MAY = re.compile(
    r"\b(?:may|can|could|might|would|will|should|must|to|never)(?: \w{1,20})? "
    r"(?:return|throw|raise|give|fail with|report|yield|be|see|mean|get)(?: an?| the)? [\"'`]?$"
)
_HANDLED = re.compile(
    r"(?i)\b(?:recover(?:ed|ing)?(?: from)?|ignor(?:ed|ing|es?)|tolerat(?:ed|ing)|handled|expect(?:ed|s|ing)?"
    r"|no|0 x|zero|without|simulat(?:ed|ing)|inject(?:ed|ing)|mock(?:ed|ing)?|fix(?:ed|es)?|suppress(?:ed|ing))"
    r"(?: an?| the)?:? [\"'`]?$"
)


@dataclass(frozen=True, slots=True)
class KindRow:
    """One kind of error that names and numbers stand for.

    ``id`` is its signature's, ``category`` and ``traits`` are as a signature's.  ``codes`` are numbers of CUDA, with
    both names that ``facts.cuda_errors`` has for each; ``names`` are others of the enumerations.
    """

    id: str
    category: str
    codes: tuple[int, ...]
    names: tuple[str, ...]
    traits: tuple[str, ...]
    source: str
    seen: str


@dataclass(frozen=True, slots=True)
class _Table:
    """The signatures in their order, and by name and number."""

    kinds: tuple[Signature, ...]
    named: Mapping[str, int]
    numbered: Mapping[int, int]


def of_library(text: str) -> tuple[str, re.Match[str]] | None:
    """The name that a library's number stands for which ``text`` holds, where no row of the table has it, and where."""
    named = _table().named
    known = ((_library_name(each), each) for each in _FOUND.finditer(text) if not each["name"])
    return next(((name, each) for name, each in known if name and name not in named), None)


def kinds() -> tuple[Signature, ...]:
    """One signature for each row of the table; of two errors in one line the earlier row counts."""
    return _table().kinds


def found(text: str) -> tuple[Signature, re.Match[str]] | None:
    """The error that ``text`` names, and where; of several the one whose row stands first."""
    table = _table()
    best = min(((at, -each.start(), each) for each, at in _known(text, table)), default=None, key=lambda one: one[:2])
    return None if best is None else (table.kinds[best[0]], best[2])


def is_name(text: str) -> bool:
    """Whether the text is an enumerator of an error, and nothing else."""
    return _ENUMERATOR.fullmatch(text) is not None


def outlines(shape: str) -> bool:
    """Whether a line of this shape (small letters, each digit a 0) can name an error."""
    low = _lowered()
    return any(not each["name"] or each["name"] in low for each in _OUTLINE.finditer(shape))


def is_value(lead: str, rest: str) -> bool:
    """Whether the error between these is the value, or in the value, of a key that tells what happened."""
    found = _VALUE.search(lead)
    if found is None or _SETTING.search(found["key"]) or (found["key"].isupper() and found["to"] == "="):
        return False
    return not rest[1:].lstrip().startswith(";") and not _DECLARED.search(lead[: found.start("key")])


def spoken_of(lead: str, rest: str) -> bool:
    """Whether what stands before an error's name and behind it only speaks of the error."""
    if any(shape.match(lead) for shape in (_SOURCE, _COMMAND, _OF_A_TEST)):
        return True
    if any(shape.search(lead) for shape in (_COMPARES, _VARIABLE, _MAY, _HANDLED)):
        return True
    return any(shape.match(rest) for shape in (_ENUMERATED, _DESCRIBED))


def _known(text: str, table: _Table) -> Iterator[tuple[re.Match[str], int]]:
    for each in _FOUND.finditer(text):
        if each["name"] or _OF_LIBRARY.match(each[0]):
            at = table.named.get(each["name"] or _library_name(each))
        else:
            at = table.numbered.get(_code(each))
        if at is not None:
            yield each, at


def _library_name(match: re.Match[str]) -> str:
    """The name that a number stands for, by the table of the library whose it is; "" for CUDA's and unknown ones."""
    library = _OF_LIBRARY.match(match[0])
    number = _code(match)
    if library is None or number <= 0:
        return ""
    known = _library_numbers().get(library["library"].lower())
    if known is not None:
        return known.get(str(number), "")
    row = status(library["library"].lower(), number)  # type: ignore[arg-type]  # those of _LIBRARY that have a row each
    return row.name if row is not None else ""


@cache
def _library_numbers() -> Mapping[str, Mapping[str, str]]:
    rows = read_table_once(LibraryNumberRow, _TABLES / "library_number.jsonl")
    return {row.library: row.names for row in rows}


def _code(match: re.Match[str]) -> int:
    """The number of a match, -1 where the words leave it open whether it counts or measures something."""
    number = next(int(match[name], 16 if match[name].startswith("0x") else 10) for name in _GROUPS if match[name])
    says = match[0].lower()
    if any(word in says.removeprefix("cudaerror") for word in _PLAIN) or match["numba"]:
        return number
    got = _GETS.match(match[0])
    counted = got or match["error"] or (" status" in says and not _OF_LIBRARY.match(says))
    if (got and got["what"] != "DeviceCount") or (counted and number < _COUNTS):
        return -1
    return -1 if number == _NO_DEVICE and match["error"] else number  # "CUDA returned 100"


@cache
def _lowered() -> frozenset[str]:
    return frozenset(name.lower() for name in _table().named)


@cache
def _table() -> _Table:
    by_code = {row.code: row for row in facts.load().cuda_errors}
    kinds, named, numbered = [], dict[str, int](), dict[int, int]()
    for at, row in enumerate(read_table_once(KindRow, _TABLES / "error_kind.jsonl")):
        names = [name for code in row.codes for name in (by_code[code].name, by_code[code].runtime_name) if name]
        names += row.names
        pattern = rf"\b(?:{'|'.join(names)})\b"
        if row.codes:
            numbers = "|".join(f"{code}|0x{code:x}" for code in row.codes)
            pattern += rf"|(?i:\b(?:cu|hip))\w.{{0,120}}?\b(?:{numbers})\b"
        kinds.append(Signature(row.id, row.category, Role.ROOT, pattern, "", row.source, row.seen, row.traits))
        named |= dict.fromkeys(names, at)
        numbered |= dict.fromkeys(row.codes, at)
    for old in read_table_once(OldCodeRow, _TABLES / "cuda_old_code.jsonl"):
        if old.old not in by_code and old.code in numbered:
            numbered[old.old] = numbered[old.code]
    return _Table(tuple(kinds), named, numbered)
