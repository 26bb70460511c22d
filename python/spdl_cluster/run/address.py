"""The address at which other nodes reach this one."""

from __future__ import annotations

import ipaddress
import socket

from ..errors import SettingError


def own_address(given: str | None, name: str | None) -> str:
    """Returns an address of this node for the others: the given one, or one of the name that the platform has for this node, or of the
    host's name.

    On many systems a node's own name is an address of loopback in `/etc/hosts`. Then it is the address from which this node sends
    to others.
    """
    if given is not None:
        found = _addresses(given)
        if not found:
            raise SettingError(f"`{given}` has no address", "give one that other nodes reach with `--address`")
        return found[0]
    for each in (name, socket.gethostname()):
        # Names of SLURM need not be those of hosts.
        if each and (found := _addresses(each)):
            if _is_literal(each) or not ipaddress.ip_address(found[0]).is_loopback:
                return found[0]
    address = _outgoing()
    if address is None:
        raise SettingError("no address of this node is known that others reach", "give one with `--address`")
    return address


def _is_literal(text: str) -> bool:
    try:
        ipaddress.ip_address(text)
    except ValueError:
        return False
    return True


def _addresses(name: str) -> list[str]:
    """Returns the addresses of a name: those that other nodes reach first, of IPv4 first."""
    try:
        found = {str(info[4][0]).split("%")[0] for info in socket.getaddrinfo(name, None, type=socket.SOCK_DGRAM)}
    except (OSError, UnicodeError):
        return []
    return sorted(found, key=lambda text: (ipaddress.ip_address(text).is_loopback, ":" in text, text))


def _outgoing() -> str | None:
    """Returns the address from which packets to other networks are sent. Sends none."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("192.0.2.1", 9))
        except OSError:
            return None
        return str(probe.getsockname()[0])


def with_port(address: str, port: int) -> str:
    """Returns `HOST:PORT`, for IPv6 with brackets."""
    return f"[{address}]:{port}" if ":" in address else f"{address}:{port}"
