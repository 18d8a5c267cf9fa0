"""Brings an image of the Docker engine to a registry, and tells under which digest that holds it.

The engine sends the image, so that it is the engine that must reach and trust the registry.  What the registry wants to
know of the user is read as the docker client reads it, from config.json or a credential helper, and goes to the engine
in the head of the request: it is on no command line and in no message.  A push takes its image from a name that is the
registry's; the engine has that name only meanwhile, also should envkit be killed.
"""

from __future__ import annotations

import json
import queue
import re
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import Any

import docker
import docker.auth
import docker.errors
import requests.exceptions
import urllib3.exceptions

from envkit.credentials import redacted_text
from envkit.engine import Say, reaper
from envkit.engine.transfer import Transfer
from envkit.engine.trouble import explain, unreachable, words_of
from envkit.errors import EnvkitError, Undecided, UsageError, one_line
from envkit.system import proc
from envkit.system.terminal import Live

_HELPER_S = 30.0  # some ask a server; one that asks a person has no terminal here
STALL_S = 180.0  # the engine tells of each piece and of each second that it waits to try again
_WRITTEN_EVERY_S = 0.1  # the live line
_TOKEN = "<token>"  # the user by which a helper says that its secret is an identity token
# Gives the name $0 to the image $1 again, or takes it away where that is empty, should envkit be killed; at a line that
# is not empty without envkit, for the engine is gone: as soon as it answers again, within ten minutes.
_RESTORES = (
    "/bin/sh",
    "-c",
    'read line && [ -z "$line" ] && exit; '
    "restore() { tries=300; until timeout 10 docker version; do "
    "tries=$((tries - 1)); [ $tries -gt 0 ] || exit; sleep 2; done; "
    'if [ "$1" ]; then docker tag "$1" "$0"; else docker image rm "$0"; fi; }; '
    'if [ "$line" ]; then restore "$1" & else restore "$1"; fi',
)
# How a push ends early; urllib3's own are those of an engine that ends in the middle.
_ENDS = (
    docker.errors.DockerException, requests.exceptions.RequestException, urllib3.exceptions.HTTPError,
    OSError, ValueError,
)  # fmt: skip
_REFUSED = re.compile(
    r"unauthorized|no basic auth credentials|authentication required|access to the resource is denied|^denied", re.I
)
_PLAIN_HTTP = re.compile(r"server gave HTTP response to HTTPS client", re.I)
_CERTIFICATE = re.compile(r"x509: |certificate", re.I)


def push(api: docker.APIClient, image: str, ref: str, say: Say) -> str:
    """The digest ("sha256:...") under which the registry holds ``image`` as ``ref``.

    Raises UsageError if the registry does not let this user, and Undecided if it or the engine does not serve.
    """
    repository, _, tag = ref.rpartition(":") if ":" in ref.rpartition("/")[2] else (ref, "", "latest")
    host, _ = docker.auth.resolve_repository_name(repository)
    credentials = _credentials(host)
    with proc.sigterm_raises(), _named(api, image, f"{repository}:{tag}"):
        say(f"pushing {ref}")
        return _followed(api, repository, tag, credentials, host, say)


@contextmanager
def _named(api: docker.APIClient, image: str, ref: str) -> Iterator[None]:
    """While it holds, ``ref`` names ``image``; afterwards it names what it did before."""
    repository, _, tag = ref.rpartition(":")
    facts, before = dict(api.inspect_image(image)), ""
    wanted, known = str(facts["Id"]), {*(facts.get("RepoDigests") or ())}
    with suppress(docker.errors.NotFound):
        before = str(api.inspect_image(ref)["Id"])
    if before == wanted:
        yield
        return
    with proc.outlived_by([*_RESTORES, ref, before]) as tell:
        try:
            api.tag(wanted, repository, tag)
            yield
        finally:
            try:
                if before:
                    api.tag(before, repository, tag)
                    # Under its digest the engine has what it pushed, for as long as the registry's name has a tag.
                    for name in {*(api.inspect_image(wanted).get("RepoDigests") or ())} - known:
                        api.remove_image(name)
                else:
                    api.remove_image(ref)
            except docker.errors.APIError:  # somebody has taken the name away
                pass
            except (docker.errors.DockerException, requests.exceptions.RequestException):
                tell(reaper.LOST)


def _credentials(host: str) -> dict[str, Any]:
    """What docker's configuration has for the registry ``host``; empty for nothing.

    Raises Undecided for a helper that fails or does not end.
    """
    held = docker.auth.load_config()
    key = docker.auth.INDEX_URL if host == docker.auth.INDEX_NAME else host
    helper = held.get_credential_store(host)
    if not helper:
        return dict(held.resolve_authconfig(host) or {})
    program = f"docker-credential-{helper}"
    fix = f"log in again with `docker login {one_line(host)}`, or see what {program} says"
    try:
        done = proc.run([program, "get"], timeout_s=_HELPER_S, stdin=key)
    except OSError as error:
        said = f"docker's configuration names the credential helper {program}, which cannot be started"
        raise Undecided(
            f"{said}: {error.strerror}", "install it, or change credsStore in docker's config.json"
        ) from None
    if done.timed_out:
        raise Undecided(f"the credential helper {program} did not answer within {_HELPER_S:.0f} s", fix)
    if done.exit != 0:
        if "credentials not found" in done.stdout + done.stderr:
            return {}
        raise Undecided(f"the credential helper {program} ended with exit code {done.exit}", fix)
    try:
        said = json.loads(done.stdout)
        user, secret = str(said["Username"]), str(said["Secret"])
    except (ValueError, LookupError, TypeError, RecursionError):
        raise Undecided(f"the credential helper {program} gave no credentials that can be read", fix) from None
    token = user == _TOKEN
    return {"IdentityToken": secret} if token else {"Username": user, "Password": secret, "ServerAddress": host}


def _followed(
    api: docker.APIClient, repository: str, tag: str, credentials: Mapping[str, Any], host: str, say: Say
) -> str:
    """Listens to the engine until the push has ended."""
    events: queue.SimpleQueue[Mapping[str, Any] | Exception | None] = queue.SimpleQueue()

    def listen() -> None:
        try:
            for event in api.push(repository, tag, stream=True, auth_config=dict(credentials), decode=True):
                events.put(event)
            events.put(None)
        except _ENDS as error:
            events.put(error)

    threading.Thread(target=listen, daemon=True).start()
    digest, sizes, sent, written = "", dict[str, int](), Transfer(), 0.0
    while True:
        try:
            event = events.get(timeout=STALL_S)
        except queue.Empty:
            said = f"the engine said nothing of the push for {STALL_S:.0f} s"
            raise Undecided(said, "look at the engine's log, and push again: layers that arrived are kept") from None
        if event is None:
            break
        if isinstance(event, Exception):
            if text := str(getattr(event, "explanation", "") or ""):
                raise trouble(text, host)
            said = f"the engine broke off the push: {one_line(words_of(event))}"
            raise Undecided(said, "look at the engine's log, and push again: layers that arrived are kept")
        if text := str(event.get("error") or ""):
            raise trouble(text, host)
        digest = str((event.get("aux") or {}).get("Digest") or digest)
        progress, layer = event.get("progressDetail") or {}, str(event.get("id") or "")
        if total := int(progress.get("total") or 0):
            sizes[layer] = total
            sent.reached(layer, min(total, int(progress.get("current") or 0)))
            if time.monotonic() - written >= _WRITTEN_EVERY_S:
                written = time.monotonic()
                say(Live(f"pushing to {host}: {sent or '0 MB'}, of {sum(sizes.values()) / 1e6:,.1f} MB"))
    say(f"pushed {sent}" if str(sent) else "the registry has all layers already")
    if not digest:  # an engine with the containerd store tells none
        with suppress(docker.errors.DockerException, requests.exceptions.RequestException):
            seen = api.inspect_distribution(f"{repository}:{tag}", auth_config=dict(credentials))
            digest = str(seen["Descriptor"]["digest"])
    if not re.fullmatch(r"sha256:[0-9a-f]{64}", digest):
        raise Undecided("the engine ended the push without a digest", "see the engine's log, and push again")
    return digest


def trouble(text: str, host: str) -> EnvkitError:
    """What the engine's words on a push that failed mean."""
    said, host = one_line(redacted_text(text.strip().rstrip("."))), one_line(host)
    if _PLAIN_HTTP.search(text):
        return Undecided(
            f"the registry {host} speaks HTTP without TLS, which the engine does not take: {said}",
            "give the registry a certificate, or name it under insecure-registries in the engine's daemon.json",
        )
    if _CERTIFICATE.search(text):
        return Undecided(
            f"the engine does not trust the certificate of the registry {host}: {said}",
            f"put the CA's certificate at /etc/docker/certs.d/{host}/ca.crt on the engine's machine",
        )
    if _REFUSED.search(text):
        return UsageError(
            f"the registry {host} does not let you push: {said}",
            f"log in with `docker login {host}` as somebody who may, and check the name",
        )
    if unreachable(text):
        fix = "check its name and port, the network and the proxy of the engine; layers that arrived are kept"
        return Undecided(f"the registry {host} did not serve: {said}", fix)
    known = explain([text], where="the engine's store")
    fix = "look at the registry's log and its disk, and push again: layers that arrived are kept"
    return known or Undecided(f"the registry {host} did not take the image: {said}", fix)
