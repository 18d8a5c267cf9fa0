"""Lets a function of a library fail at a later call as it fails on a GPU: out of C, so no frame of this file is shown.

    import standin
    standin.after("torch.nn.functional.linear", 40, RuntimeError, "CUDA error: ...", before="what is on stderr first")

The first 40 calls are the library's own.  With a number in place of an exception the
process gets that signal, or with -1 ends with 1.
"""

from __future__ import annotations

import importlib
import subprocess
import sys
import sysconfig
import tempfile
from pathlib import Path
from typing import Any

_SOURCE = r"""
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <signal.h>
#include <unistd.h>
typedef struct { PyObject_HEAD PyObject *real, *raised, *said, *before; long calls; int number; } After;
static PyObject *call(PyObject *me, PyObject *args, PyObject *named) {
    After *a = (After *)me;
    if (a->calls-- > 0) return PyObject_Call(a->real, args, named);
    Py_ssize_t size; const char *text = PyUnicode_AsUTF8AndSize(a->before, &size);
    if (text && size && write(2, text, size) < 0) return NULL;
    if (a->number < 0) _exit(-a->number);
    if (a->number) { kill(getpid(), a->number); sleep(5); }
    PyErr_SetObject(a->raised, a->said);
    return NULL;
}
static PyObject *bound(PyObject *me, PyObject *of, PyObject *type) {
    if (of == NULL || of == Py_None) { Py_INCREF(me); return me; }
    return PyMethod_New(me, of);
}
static PyTypeObject Type = { PyVarObject_HEAD_INIT(NULL, 0) .tp_name = "_after.function", .tp_basicsize = sizeof(After),
    .tp_call = call, .tp_descr_get = bound, .tp_flags = Py_TPFLAGS_DEFAULT };
static PyObject *make(PyObject *module, PyObject *args) {
    After *a = PyObject_New(After, &Type);
    if (!PyArg_ParseTuple(args, "OlOOUi", &a->real, &a->calls, &a->raised, &a->said, &a->before, &a->number))
        return NULL;
    Py_INCREF(a->real); Py_INCREF(a->raised); Py_INCREF(a->said); Py_INCREF(a->before);
    return (PyObject *)a;
}
static PyMethodDef methods[] = {{"make", make, METH_VARARGS, ""}, {0}};
static struct PyModuleDef module = {PyModuleDef_HEAD_INIT, "_after", "", -1, methods};
PyMODINIT_FUNC PyInit__after(void) { return PyType_Ready(&Type) < 0 ? NULL : PyModule_Create(&module); }
"""


def told(error: str, name: str) -> str:
    """What torch says of a CUDA error, as c10/cuda/CUDAException.cpp and CUDAMiscFunctions.cpp put it together."""
    return (
        f"CUDA error: {error}\nSearch for `{name}' in "
        "https://docs.nvidia.com/cuda/cuda-runtime-api/group__CUDART__TYPES.html for more information.\n"
        "CUDA kernel errors might be asynchronously reported at some other API call, so the stacktrace below might be "
        "incorrect.\nFor debugging consider passing CUDA_LAUNCH_BLOCKING=1\n"
        "Compile with `TORCH_USE_CUDA_DSA` to enable device-side assertions.\n"
    )


def _compiled() -> Any:
    with tempfile.TemporaryDirectory() as made:
        source = Path(made, "_after.c")
        source.write_text(_SOURCE)
        include = sysconfig.get_paths()["include"]
        subprocess.run(["cc", "-w", "-shared", "-fPIC", f"-I{include}", source, "-o", f"{made}/_after.so"], check=True)
        sys.path.insert(0, made)
        try:
            return importlib.import_module("_after")
        finally:
            sys.path.remove(made)


def after(target: str, calls: int, raised: Any, said: str = "", before: str = "") -> None:
    """Puts a function that fails after ``calls`` calls in place of ``target``, a dotted name."""
    parts = target.split(".")
    for cut in range(len(parts) - 1, 0, -1):
        try:
            holder: Any = importlib.import_module(".".join(parts[:cut]))
        except ImportError:
            continue
        break
    for part in parts[cut:-1]:
        holder = getattr(holder, part)
    number = raised if isinstance(raised, int) else 0
    made = _compiled().make(getattr(holder, parts[-1]), calls, RuntimeError if number else raised, said, before, number)
    setattr(holder, parts[-1], made)
