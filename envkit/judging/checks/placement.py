"""Judges where a model's tensors live: which operation mixes devices or dtypes, what is split, what crosses."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from envkit.judging.checks._given import FIX, must_see
from envkit.judging.checks._model import last_words, place
from envkit.judging.checks._outcomes import error, skip_if, unknown_if, warning
from envkit.model import Finding, Severity, Skip, Unknown
from envkit.subjects.placement import End, Group, Line, Operand, Placement

_MOST = 20  # lines told of one kind; the rest is counted in the last one


def _pretended(model: Placement) -> bool:
    return model.how != "run"


def _how_it_failed(end: End) -> str:
    """What ended the child, or the exception that the user's code or torch raised; empty if nothing did."""
    if end.ended == "killed":
        return f"was killed by {end.signal}"
    if end.ended == "hung":
        return f"did not end: {end.detail}"
    if end.ended != "ran":
        return f"ended its process: {end.detail}" if end.ended == "garbled" else f"failed: {end.detail}"
    return f"raised {end.stop.message}" if end.stop else ""


def _in_model(end: End) -> bool:
    """Whether the model itself was running when it ended."""
    return end.stage in ("forward", "loss", "backward")


def _followed(model: Placement) -> None:
    """Raises Unknown unless the model's run was seen to its end."""
    end = model.end.need("the run of the model")
    failed = _how_it_failed(end)
    if model.refusal is not None:
        at = f" at {model.refusal.where}" if model.refusal.where else ""
        raise Unknown(f"the run stopped{at}, where an operation has operands of two {model.refusal.kind}")
    unknown_if(failed, f"the run stopped in the stage {end.stage}: it {failed}")
    unknown_if(not _in_model(end), f"the run stopped in the stage {end.stage}")


def _all_judged(model: Placement) -> None:
    _followed(model)
    if model.how == "trace" and model.unjudged:
        raise Unknown(f"without a GPU no rule is known for {', '.join(model.unjudged)}")


def _named(tensors: Iterable[Operand], of: str) -> str:
    """The operands of an operation by device or dtype, each with its name where it has one."""
    told: dict[str, list[str]] = {}
    for each in tensors:
        value = each.device if of == "device" else each.dtype
        told.setdefault(value, []).append(each.name or "a tensor of shape " + str(list(each.shape)))
    return " and ".join(f"{value} ({', '.join(dict.fromkeys(names))})" for value, names in told.items())


def _gpu_in(groups: Iterable[Group]) -> bool:
    return any(group.device.startswith("cuda") for group in groups)


def placement_gpu_not_seen(model: Placement) -> Iterator[Finding]:
    """A run that was given GPUs sees them; otherwise the model is followed on a GPU that is not there."""
    least = must_see(model.gpus_given)
    seen = model.gpus.need("the GPUs that the run saw")
    if len(seen) < least:
        given = " and ".join(model.gpus_given)
        yield error(
            f"the run was given GPU {given} and torch sees {len(seen) or 'none'}",
            evidence={", ".join(seen) or "none": model.gpus.via, given: "given by envkit"},
            fix=FIX,
        )


def placement_factory_failed(model: Placement) -> Iterator[Finding]:
    """The module is imported and its factory returns a model with example inputs."""
    end = model.end.need("the run of the model")
    failed = _how_it_failed(end)
    if not failed or _in_model(end):
        return
    stop = end.stop
    if _pretended(model) and stop is not None and stop.stage == "factory" and not stop.by_user:
        at = f" at {stop.where}" if stop.where else ""
        raise Unknown(f"without a GPU the factory {failed}{at}")
    what = "the module" if end.stage in ("import", "import torch") else "the factory"
    yield error(
        f"{what} of {model.target} {failed}",
        place(stop.where, "") if stop else "",
        last_words(end),
        "call the factory by hand: it must return (model, inputs) within the time given",
    )


def placement_forward_failed(model: Placement) -> Iterator[Finding]:
    """The model runs once with its example inputs, forward and backward."""
    end = model.end.need("the run of the model")
    skip_if(model.refusal is not None, "it stopped at an operation with two devices or dtypes")
    failed = _how_it_failed(end)
    unknown_if(not _in_model(end), f"the run stopped in the stage {end.stage}" + (f": it {failed}" if failed else ""))
    if not failed:
        return
    stop = end.stop
    if _pretended(model) and stop is not None and not stop.by_user:
        at = f" at {stop.where}" if stop.where else ""
        raise Unknown(f"without a GPU the {end.stage} {failed}{at}")
    yield error(
        f"the {end.stage} {failed}",
        place(stop.where, stop.module) if stop else "",
        last_words(end),
        "run the model once with these inputs by hand",
    )


def placement_two_devices(model: Placement) -> Iterator[Finding]:
    """No operation takes tensors of two devices, but for what torch allows: a number without dimensions, an index."""
    refusal = model.refusal
    if refusal is None or refusal.kind != "devices":
        _all_judged(model)
        return
    met = _named(refusal.tensors, "device")
    what = f"{refusal.op} meets {met}" if met and refusal.op else refusal.message.split(" (when", 1)[0].rstrip(".")
    yield error(
        what,
        place(refusal.where, refusal.module),
        {refusal.source or refusal.message: "the line"},
        "move the operand that is on another device before this line: `.to(device)` for an input, "
        "`model.to(device)` for a part",
    )


def placement_dtype_mix(model: Placement) -> Iterator[Finding]:
    """No matrix product takes operands of two dtypes, which cuBLAS does not have and torch refuses."""
    refusal = model.refusal
    if refusal is None or refusal.kind != "dtypes":
        _all_judged(model)
        return
    yield error(
        f"{refusal.op} meets {_named(refusal.tensors, 'dtype')}",
        place(refusal.where, refusal.module),
        {refusal.source or refusal.message: "the line"},
        "cast one of them (`.to(dtype)`), or run the model under torch.autocast",
    )


def _devices(groups: Iterable[Group]) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for group in groups:
        found.setdefault(group.device, []).extend(group.names)
    return found


def _list(devices: dict[str, list[str]]) -> str:
    return " and ".join(f"{device} ({', '.join(names[:2])}, ...)" for device, names in sorted(devices.items()))


def placement_state_split(model: Placement) -> Iterator[Finding]:
    """Parameters, buffers and an optimizer's state lie on one device, or where the model's own map says."""
    groups = model.groups.need("the devices of parameters and buffers")
    astray = model.astray.need("the devices of the optimizer's state")
    if astray:
        lost, more = astray[0], f", and so do {len(astray) - 1} more" if len(astray) > 1 else ""
        yield error(
            f"the optimizer's {lost.key} of {lost.name} lies on {lost.device}, the parameter on {lost.of}{more}",
            lost.name,
            {lost.device: "optimizer.state", lost.of: "named_parameters"},
            "move the model before the optimizer is made or its state loaded",
        )
    state = [group for group in groups if group.what in ("parameters", "buffers")]
    devices = _devices(state)
    if "meta" in devices:
        yield error(
            f"{sum(group.tensors for group in state if group.device == 'meta')} tensors of the model have no memory: "
            f"they are on meta ({', '.join(devices['meta'][:3])})",
            devices["meta"][0] if devices["meta"] else "",
            {"meta": "named_parameters, named_buffers"},
            "load the weights, or call to_empty and initialise them",
        )
        del devices["meta"]
    frozen, trained = _by_training(groups)
    if len(devices) > 1 and not model.declared_map and (not frozen or not trained or set(frozen) & set(trained)):
        yield warning(
            f"the model lies on {len(devices)} devices: {_list(devices)}",
            evidence=dict.fromkeys(devices, "named_parameters, named_buffers"),
            fix="move it to one device, or declare the map (hf_device_map) if it is split on purpose",
        )


def _by_training(groups: Iterable[Group]) -> tuple[dict[str, list[str]], dict[str, list[str]]]:
    parameters = [group for group in groups if group.what == "parameters" and group.device != "meta"]
    return (
        _devices(group for group in parameters if not group.trained),
        _devices(group for group in parameters if group.trained),
    )


def placement_frozen_split(model: Placement) -> Iterator[Finding]:
    """Frozen and trained parameters lie on the same devices; else every step carries their output over, or fails."""
    frozen, trained = _by_training(model.groups.need("the devices of the parameters"))
    skip_if(not frozen or not trained, "no parameter is frozen" if not frozen else "every parameter is frozen")
    if set(frozen) != set(trained) and not model.declared_map:
        yield warning(
            f"frozen parameters lie on {_list(frozen)}, trained ones on {_list(trained)}",
            next((names[0] for device, names in frozen.items() if device not in trained and names), ""),
            dict.fromkeys((*frozen, *trained), "named_parameters"),
            "move the whole model (`model.to(device)`), frozen parts included",
        )


def _told(lines: list[Line], what: str, fix: str) -> Iterator[Finding]:
    for line in lines[:_MOST]:
        size = f" ({line.bytes} bytes)" if line.bytes else ""
        op = f" with {line.op}" if line.op else ""
        times = "once" if line.count == 1 else f"{line.count} times"
        yield warning(
            f"{line.where or line.module or 'torch itself'} {what.format(kind=line.kind)}{op} {times} in one run{size}",
            place(line.where, line.module),
            {line.source or line.op: "the line"},
            fix,
        )
    if len(lines) > _MOST:
        yield warning(f"{len(lines) - _MOST} more lines do so", fix=fix)


def placement_host_copies(model: Placement) -> Iterator[Finding]:
    """A run of the model copies nothing between the host and a GPU."""
    lines = model.lines.need("what the run copies")
    crossing = [line for line in lines if line.kind != "wait"]
    yield from _told(
        crossing,
        "copies from {kind}",
        "make the tensor on the device where it is used, or move it once and before the run",
    )
    _followed(model)
    if not crossing and not _gpu_in(model.groups.need("the devices of the tensors")):
        raise Skip("nothing of the model is on a GPU")


def placement_host_waits_for_gpu(model: Placement) -> Iterator[Finding]:
    """No line of the model makes the host wait for the GPU."""
    lines = model.lines.need("what the run waited for")
    copies = {line.where for line in lines if line.kind != "wait" and line.where}
    waiting = [line for line in lines if line.kind == "wait" and line.where not in copies]
    merged: dict[tuple[str, str], Line] = {}
    for line in waiting:  # torch's warning and the operation tell of the same wait
        key = (line.where, line.module)
        if key not in merged or (line.op and not merged[key].op):
            merged[key] = line
    yield from _told(
        list(merged.values()),
        "makes the host wait for the GPU",
        "keep the value on the GPU (torch.where, a mask) or read it less often",
    )
    _followed(model)
    skip_if(not _gpu_in(model.groups.need("the devices of the tensors")), "nothing of the model is on a GPU")
    skip_if(_pretended(model) and not merged, "only on a GPU is every wait detected, and there is none here")


def placement_fork_after_cuda(model: Placement) -> Iterator[Finding]:
    """The process does not fork after CUDA was initialised: a child that touches CUDA then fails or hangs."""
    for fork in model.forks.need("whether the process forks"):
        loader = fork.by == "a data loader"
        yield Finding(
            f"{fork.by} forks the process after CUDA was initialised",
            Severity.NOTE if loader else Severity.WARNING,
            fork.where,
            {fork.source or fork.where: "the line"},
            "keep CUDA out of the data set's code"
            if loader
            else "use the start method `spawn`, or fork before the first use of CUDA",
        )
    _followed(model)


def placement_ranks_share_gpu(model: Placement) -> Iterator[Finding]:
    """Each rank of a distributed job works on GPUs of its own, and all ranks do or none does."""
    skip_if(not model.ranks_asked, "the ranks were not compared")
    ranks = model.ranks.need("what the ranks said")
    owners: dict[tuple[str, str], list[str]] = {}
    for rank in ranks:
        for gpu in rank.gpus:
            if gpu.id:
                owners.setdefault((rank.host if ":" in gpu.id else "", gpu.id), []).append(str(rank.rank))
    for (_, gpu_id), names in owners.items():
        sharing = list(dict.fromkeys(names))
        if len(sharing) > 1:
            visible = {f"rank {rank.rank}": str(rank.visible) for rank in ranks if str(rank.rank) in sharing}
            yield error(
                f"ranks {' and '.join(sharing)} work on the same GPU {gpu_id}",
                gpu_id,
                {f"{name}: {value}": "CUDA_VISIBLE_DEVICES" for name, value in visible.items()},
                "call torch.cuda.set_device(LOCAL_RANK) first, or give each rank its own CUDA_VISIBLE_DEVICES",
            )
    without = [str(rank.rank) for rank in ranks if not rank.gpus]
    if without and len(without) < len(ranks):
        yield error(
            f"rank {' and '.join(without)} works on no GPU and the others do",
            evidence={f"{rank.rank} sees {rank.seen}": "torch.cuda.device_count" for rank in ranks},
            fix="see CUDA_VISIBLE_DEVICES and the GPUs that these ranks were given",
        )
    world = max([rank.world or 1 for rank in ranks], default=1)
    if {rank.world for rank in ranks} - {ranks[0].world if ranks else None}:
        sizes = ", ".join(f"rank {rank.rank} says {rank.world}" for rank in ranks)
        yield error(f"the ranks do not agree on their number: {sizes}", fix="start all ranks with one launcher")
        return  # which ranks are missing, and whose GPUs are compared, nobody knows then
    if len(ranks) < world:
        missing = sorted(set(range(world)) - {rank.rank for rank in ranks if rank.rank is not None})
        raise Unknown(f"rank {' and '.join(map(str, missing))} did not answer")
    skip_if(world < 2, "there is one rank")
    unknown_if(any(not gpu.id for rank in ranks for gpu in rank.gpus), "the GPUs of the ranks could not be identified")
    skip_if(not owners, "no rank works on a GPU")
