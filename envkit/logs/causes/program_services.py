"""What is around the job: networks, hubs and registries, schedulers and clusters, runners, package indexes."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from envkit.facts import Facts
from envkit.logs.causes._stated import Says, stated
from envkit.logs.records import Hypothesis, Strength
from envkit.logs.story import Story

_NAMES = {
    f"program-name-{each}": "a host name could not be resolved: {text}"
    for each in ("temporary", "unknown", "host", "windows", "apt", "go", "go-server")
}
_NETWORK = {
    **_NAMES,
    "program-retries": "a server was not reached however often it was asked: {text}",
    "program-connection-new": "no connection to a server was made: {text}",
    "program-certificate": "a server's certificate is not trusted here: {text}",
    "program-tls": "the encrypted connection to a server failed ({what})",
    "program-tls-handshake": "the encrypted connection to a server took too long",
    "program-proxy": "the proxy was not reached: {text}",
    "program-proxy-tunnel": "the proxy refused with status {status}",
    "program-http-status": "a server answered with status {status}",
    "program-http-client": "a server refused with status {status}: {text}",
    "program-http-server": "a server failed with status {status}: {text}",
    "program-http-quoted": "a server answered with status {status}: {text}",
    "program-http-read": "a server did not answer in time: {text}",
    "program-http-incomplete": "a download broke off: {text}",
    "program-http-urlopen": "an address could not be opened ({what})",
    "program-unreachable": "there is no way to the network asked for: {text}",
    "program-hub-gated": "the model is only for those whom its owner lets in, and no right token was given",
    "program-hub-gated-error": "the model is only for those whom its owner lets in, and no right token was given",
    "program-hub-not-cached": "the hub was not reached and the file is not in the cache",
    "program-hub-offline": "the hub is switched off by a setting, and the file is not in the cache",
    "program-hub-unreachable": "the hub at {url} was not reached",
    "program-wandb": "the tracking service refused or was not reached: {text}",
    "program-wandb-errors": "the tracking service refused or was not reached ({what})",
    "program-git": "git did not get what it was to fetch: {text}",
    "program-git-rpc": "git's transfer broke off: {text}",
    "program-git-lfs": "Git LFS did not get a file: {text}",
    "program-curl": "curl failed with code {code} ({what})",
    "program-ssh": "{host} was not reached by ssh on port {port} ({what})",
    "program-ssh-key": "ssh was refused: no key fits",
    "program-ssh-host-key": "ssh does not trust the other host's key",
    "program-cloud-s3": "the object store refused or was not reached ({what})",
    "program-cloud-google": "the cloud's service refused or was not reached ({what})",
}
_REGISTRY = {
    "program-registry-limit": "the registry lets no more pulls through for now",
    "program-registry-pull": "the image {image} could not be pulled",
    "program-registry-pull-error": "the image could not be pulled: {text}",
    "program-registry-back-off": "the image could not be pulled: {text}",
    "program-registry-manifest": "the registry has no such image or tag: {text}",
    "program-registry-denied": "the registry does not give this image to this user: {text}",
    "program-registry-login": "the registry wants a login: {text}",
    "program-apt-fetch": "apt could not fetch a file: {text}",
    "program-apt-package": "apt knows no package of that name: {text}",
    "program-apt-key": "apt does not trust a source: the key {key} is not known here",
    "program-apt-lock": "another apt is at work: {text}",
    "program-apt-repository": "a source of apt cannot be used: {text}",
    "program-daemon-away": "Docker's daemon does not answer",
}
_CLUSTER = {
    "program-slurm-limit": "the job ran into its time limit",
    "program-slurm-preempted": "the job had to make room for another",
    "program-slurm-requeue": "the job was put back into the queue",
    "program-slurm-node": "a node of the job failed",
    "program-preempted-spot": "the cloud took the machine back",
    "program-preempted-job": "the job had to make room for another, or the cloud took its machine back",
    "program-lsf-limit": "the job ran into its time limit",
    "program-pbs-limit": "the job ran into its time limit",
    "program-unschedulable": "no node has room for the pod: {what}",
    "program-mount-failed": "the volume {name} could not be mounted",
    "program-mount-attach": "a volume could not be mounted: {text}",
    "program-mount-claim": "the claim of a volume, {name}, does not exist",
    "program-node-away": "the pod's node does not answer",
    "program-preempted-pod": "the pod had to make room for another",
    "program-runner-cancelled": "the run was cancelled from outside",
    "program-runner-shutdown": "the runner of the test service went away: {text}",
    "program-runner-time": "the run took longer than the test service allows",
}
_ASK = ("curl -sSIv URL", "env | grep -i proxy")
_LAYERS = 3
_STATES = ("sacct -j JOB --format=JobID,State,ExitCode,Elapsed,Timelimit,NodeList", "kubectl describe pod POD")

TABLE = {
    **{each: Says("infra", why, next=_ASK) for each, why in _NETWORK.items()},
    **{each: Says("infra", why) for each, why in _REGISTRY.items()},
    **{each: Says("infra", why, proof=True, next=_STATES) for each, why in _CLUSTER.items()},
    "program-slurm-cancelled": Says(
        "infra",
        "the job was cancelled from outside at {at}, and nothing before it had failed",
        Strength.POSSIBLE,
        decide_by="sacct's state of the job: CANCELLED by USER, TIMEOUT, OUT_OF_MEMORY or NODE_FAIL",
        next=_STATES,
    ),
    "program-slurm-refused": Says("launch-config", "Slurm refused the request ({what})", next=_STATES),
    "program-sigterm": Says(
        "infra",
        "the program was asked to end by signal 15 from outside, and nothing before it had failed",
        Strength.POSSIBLE,
        decide_by="the state that the scheduler gives the job (time limit, preemption, cancelled by a person)",
        next=_STATES,
    ),
    "program-slurm-submit": Says("launch-config", "Slurm refused the request ({what})", next=_STATES),
    "program-secret-missing": Says("launch-config", "the pod names {name}, which the cluster does not have"),
    "program-refused-python": Says(
        "infra",
        "nobody listens at the address: {text}",
        Strength.POSSIBLE,
        decide_by="whether the server's process runs, and what its own log says",
    ),
    "program-keyboard": Says(
        "infra",
        "the program was interrupted from the keyboard; nothing before it had failed",
        Strength.POSSIBLE,
        decide_by="why it was interrupted: if it hung, the stacks of all ranks at that time",
    ),
}


def around_the_job(story: Story, facts: Facts) -> Iterator[Hypothesis]:
    """Services that failed, refused or ended the job, as their clients and agents word it.

    Sources: errno(3), urllib3 and huggingface_hub exceptions, OCI distribution error codes, Slurm job states,
    Kubernetes events.
    """
    network: list[Hypothesis] = []
    for found in stated(story, TABLE):
        if found.next == _ASK:
            network.append(found)
        else:
            yield found
    if network:
        # one outage is told by every layer, the lowest one knows most
        network.sort(key=lambda each: -each.strength)
        lines = tuple(dict.fromkeys(line for each in network for line in each.evidence))
        yield replace(network[0], evidence=lines[:_LAYERS])
