//! Tests of the cluster's CA in a directory, and of the identities that it issues.

use std::{fs, os::unix::fs::PermissionsExt, time::Duration};

use spdl_control::Role;
use spdl_wire::certs::{CertError, ClusterCa, Identity, LEAF_VALIDITY};

fn mode(path: &std::path::Path) -> u32 {
    fs::metadata(path).unwrap().permissions().mode() & 0o777
}

#[test]
fn a_ca_is_made_once_and_its_certificates_load() {
    let dir = tempfile::tempdir().unwrap();
    let state = dir.path().join("state/tls");
    assert!(matches!(ClusterCa::open(&state), Err(CertError::NoCa { .. })));
    let ca = ClusterCa::open_or_create(&state).unwrap();
    assert_eq!(ClusterCa::open_or_create(&state).unwrap().ca_pem(), ca.ca_pem());
    assert_eq!(mode(&state.join("ca.key")), 0o600);
    let out = dir.path().join("worker-0");
    let sans = ["node-0.example".to_owned(), "10.0.0.7".to_owned()];
    ca.issue(Role::Worker, "worker-0", &sans, LEAF_VALIDITY).unwrap().write(&out).unwrap();
    assert_eq!(mode(&out.join("key.pem")), 0o600);
    let identity = Identity::load(&out).unwrap();
    assert_eq!((identity.role(), identity.name()), (Role::Worker, "worker-0"));
    assert!(identity.ca_name().contains("spdl-cluster CA"));
    let names: Vec<_> = fs::read_dir(&out).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(names.len(), 3, "no file beside the three: {names:?}");
    for (ours, theirs) in [("ca.pem", "ca.crt"), ("cert.pem", "tls.crt"), ("key.pem", "tls.key")] {
        fs::rename(out.join(ours), out.join(theirs)).unwrap();
    }
    assert_eq!(Identity::load(&out).unwrap().name(), "worker-0", "the names of a Kubernetes secret do as well");
}

#[test]
fn processes_that_start_at_once_make_one_ca() {
    let dir = tempfile::tempdir().unwrap();
    let pems: Vec<String> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..8)
            .map(|_| scope.spawn(|| ClusterCa::open_or_create(dir.path()).unwrap().ca_pem().to_owned()))
            .collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    assert!(pems.iter().all(|pem| *pem == pems[0]));
}

#[test]
fn a_crash_between_key_and_certificate_is_mended() {
    let dir = tempfile::tempdir().unwrap();
    ClusterCa::open_or_create(dir.path()).unwrap();
    let key = fs::read(dir.path().join("ca.key")).unwrap();
    fs::remove_file(dir.path().join("ca.pem")).unwrap();
    let ca = ClusterCa::open_or_create(dir.path()).unwrap();
    assert_eq!(fs::read(dir.path().join("ca.key")).unwrap(), key);
    ca.issue(Role::Admin, "me", &[], LEAF_VALIDITY).unwrap().identity().unwrap();
}

#[test]
fn names_that_would_be_a_role_or_no_name_are_refused() {
    let dir = tempfile::tempdir().unwrap();
    let ca = ClusterCa::open_or_create(dir.path()).unwrap();
    for name in ["", "a b", "é", &"x".repeat(65)] {
        assert!(matches!(ca.issue(Role::Client, name, &[], LEAF_VALIDITY), Err(CertError::Issue { .. })), "{name}");
    }
    let role = "Coordinator.role.spdl.internal".to_owned();
    let error = ca.issue(Role::Client, "c", &[role], LEAF_VALIDITY).unwrap_err().to_string();
    assert!(error.contains("role"), "{error}");
}

#[test]
fn files_of_different_clusters_do_not_mix() {
    let (one, two) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let out = tempfile::tempdir().unwrap();
    let ours = ClusterCa::open_or_create(one.path()).unwrap();
    let theirs = ClusterCa::open_or_create(two.path()).unwrap();
    ours.issue(Role::Client, "rank", &[], LEAF_VALIDITY).unwrap().write(out.path()).unwrap();
    let issued = theirs.issue(Role::Client, "rank", &[], LEAF_VALIDITY).unwrap();
    assert!(matches!(issued.write(out.path()), Err(CertError::OtherCluster { .. })));
    fs::write(out.path().join("cert.pem"), &issued.certificate_pem).unwrap();
    let error = Identity::load(out.path()).unwrap_err().to_string();
    assert!(error.contains("cert.pem") && error.contains("one cluster"), "{error}");
}

#[test]
fn unusable_files_are_named_with_what_is_wrong() {
    let dir = tempfile::tempdir().unwrap();
    let out = dir.path().join("out");
    let ca = ClusterCa::open_or_create(dir.path()).unwrap();
    let error = Identity::load(&out).unwrap_err().to_string();
    assert!(error.contains("spdl-ctl cert"), "{error}");
    let issued = ca.issue(Role::Client, "rank", &[], LEAF_VALIDITY).unwrap();
    issued.write(&out).unwrap();
    let other = ca.issue(Role::Client, "rank", &[], LEAF_VALIDITY).unwrap();
    fs::write(out.join("key.pem"), &other.key_pem).unwrap();
    assert!(matches!(Identity::load(&out), Err(CertError::Invalid { .. })), "a key of another certificate");
    issued.write(&out).unwrap();
    fs::write(out.join("cert.pem"), "nothing").unwrap();
    assert!(matches!(Identity::load(&out), Err(CertError::Invalid { .. })), "no certificate");
    ca.issue(Role::Client, "rank", &[], Duration::ZERO).unwrap().write(&out).unwrap();
    let error = Identity::load(&out).unwrap_err().to_string();
    assert!(error.contains("issue another"), "{error}");
}
