"""Certificates that cert-manager issues, against what our programs demand: docs/spec/protocol/certificates.md."""

from .manifest import Resource, demand, label

SUFFIX = ".role.spdl.internal"
#: Only coordinators and workers serve.
USAGES = {
    "coordinator": {"digital signature", "server auth", "client auth"},
    "worker": {"digital signature", "server auth", "client auth"},
    "client": {"digital signature", "client auth"},
    "admin": {"digital signature", "client auth"},
}


def check_certificates(resources: list[Resource], origin: str) -> None:
    certificates = [r for r in resources if r["kind"] == "Certificate"]
    issuers = {r["metadata"]["name"]: r["spec"] for r in resources if r["kind"] == "Issuer"}
    made = [certificate["spec"]["secretName"] for certificate in certificates]
    demand(len(made) == len(set(made)), f"{origin}: two certificates for one Secret: {sorted(made)}")
    for issuer, spec in issuers.items():
        secret = spec.get("ca", {}).get("secretName")
        demand(secret in [None, *made], f"{origin}: Issuer {issuer}: no Certificate makes the Secret `{secret}`")
    for certificate in certificates:
        name, spec = f"{origin}: {label(certificate)}", certificate["spec"]
        demand(spec["issuerRef"]["name"] in issuers, f"{name}: no Issuer `{spec['issuerRef']['name']}`")
        if spec.get("isCA"):
            demand({"cert sign"} <= set(spec["usages"]), f"{name} is of a CA and cannot sign")
        else:
            _check_role(name, spec)


def _check_role(name: str, spec: Resource) -> None:
    (host,) = spec["dnsNames"]
    role = host.removesuffix(SUFFIX)
    demand(role in USAGES and role + SUFFIX == host, f"{name}: `{host}` names no role; the roles are {sorted(USAGES)}, as `ROLE{SUFFIX}`")
    demand(set(spec["usages"]) == USAGES[role], f"{name}: a {role} needs the usages {sorted(USAGES[role])}")
