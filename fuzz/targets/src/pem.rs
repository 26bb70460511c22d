//! Certificates and keys as PEM text.

use std::path::Path;

use spdl_wire::certs::Identity;

/// Reads three texts, separated by zero bytes.
pub(crate) fn read(data: &[u8]) {
    let mut texts = data.split(|byte| *byte == 0).map(std::str::from_utf8);
    let (Some(Ok(ca)), Some(Ok(certificate)), Some(Ok(key))) = (texts.next(), texts.next(), texts.next()) else {
        return;
    };
    if let Ok(identity) = Identity::from_pem(ca, certificate, key, Path::new("pem")) {
        assert!(!identity.ca_name().is_empty());
    }
}

/// Makes a cluster for the seed, so that its certificates are valid on the day of the run.
pub(crate) fn seeds() -> Vec<Vec<u8>> {
    use spdl_control::Role;
    use spdl_wire::certs::{ClusterCa, LEAF_VALIDITY};

    let folder =
        std::env::temp_dir().join(format!("spdl-fuzz-{}-{:?}", std::process::id(), std::thread::current().id()));
    let ca = ClusterCa::open_or_create(&folder).expect("a CA for the seed");
    let issued = ca.issue(Role::Worker, "worker-0", &["127.0.0.1".into()], LEAF_VALIDITY).expect("a certificate");
    let seed = [ca.ca_pem(), &issued.certificate_pem, &issued.key_pem].join("\0").into_bytes();
    std::fs::remove_dir_all(&folder).expect("the CA's folder is removed");
    vec![seed]
}
