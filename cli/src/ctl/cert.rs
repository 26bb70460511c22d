//! `spdl-ctl cert`: issues certificates from the cluster's CA.

use std::{
    path::{Path, PathBuf},
    process::ExitCode,
    time::Duration,
};

use spdl_control::Role;
use spdl_wire::certs::{ClusterCa, LEAF_VALIDITY};

use super::{CtlError, CtlResult, output::outln, report};

const DAY: Duration = Duration::from_secs(24 * 3600);

/// Arguments of `cert`.
#[derive(Debug, clap::Args)]
pub(crate) struct CertArgs {
    /// Folder of the CA: `ca` in the coordinator's state folder. Created, with a new CA, when it does not exist.
    #[arg(long)]
    ca: PathBuf,
    /// Role in the certificate: coordinator, worker, client or admin.
    #[arg(long)]
    role: Role,
    /// Name of the certificate's owner, shown in logs and in the status.
    #[arg(long)]
    name: String,
    /// Folder for `ca.pem`, `cert.pem` and `key.pem`.
    #[arg(long)]
    out: PathBuf,
    /// Additional host name or address for the certificate; may be given several times.
    #[arg(long = "san")]
    sans: Vec<String>,
    /// Days for which the certificate is valid. When raised, a stolen key can be used for longer.
    #[arg(long, value_name = "DAYS", default_value_t = 365, value_parser = clap::value_parser!(u32).range(1..=3650))]
    days: u32,
    /// Prints one line of JSON.
    #[arg(long)]
    json: bool,
}

/// Runs `cert`.
pub(crate) fn run(args: &CertArgs) -> CtlResult {
    let ca = ClusterCa::open_or_create(&args.ca)?;
    ca.issue(args.role, &args.name, &args.sans, DAY * args.days)?.write(&args.out)?;
    if args.json {
        report::json(&serde_json::json!({ "role": args.role.to_string(), "name": args.name, "out": args.out }))?;
    } else {
        outln!("{} certificate of `{}` in {}", args.role, args.name, args.out.display())?;
    }
    Ok(ExitCode::SUCCESS)
}

/// Issues a certificate from an existing CA.
pub(crate) fn issue(ca: &Path, role: Role, name: &str, out: &Path) -> Result<(), CtlError> {
    Ok(ClusterCa::open(ca)?.issue(role, name, &[], LEAF_VALIDITY)?.write(out)?)
}
