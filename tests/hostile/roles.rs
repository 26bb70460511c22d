//! Valid certificates of the wrong role or the wrong cluster.

use spdl_control::{
    Role,
    messages::{FromCoordinator, ToCoordinator},
};
use spdl_testkit::processes::LIMIT;
use spdl_types::WorkerId;
use spdl_wire::{
    certs::{ClusterCa, LEAF_VALIDITY},
    quic::{self, QuicError},
};

use super::attacked_cluster::AttackedCluster;

#[test]
fn a_certificate_of_the_wrong_role_or_cluster_is_refused_by_name() {
    let attacked = AttackedCluster::start();
    let (worker, coordinator) = (attacked.worker(), attacked.coordinator());
    let other = tempfile::tempdir().unwrap();
    let other = ClusterCa::open_or_create(other.path()).unwrap();
    attacked.runtime.block_on(async {
        for (port, at, role, may) in [
            (worker, Role::Worker, Role::Coordinator, "only: worker, client, admin"),
            (coordinator, Role::Coordinator, Role::Coordinator, "only: worker, client, admin"),
        ] {
            let endpoint = attacked.endpoint(&attacked.identity(role));
            let error = quic::connect(&endpoint, port, at, LIMIT).await.unwrap_err();
            let text = error.to_string();
            assert!(matches!(error, QuicError::Refused { .. }) && !error.is_retryable(), "{error:?}");
            assert!(text.contains(&format!("a {role} may not connect here, {may}")), "{text}");
        }
        // The server's role is not the expected one.
        for (port, at) in [(worker, Role::Coordinator), (coordinator, Role::Worker)] {
            let endpoint = attacked.endpoint(&attacked.identity(Role::Client));
            let error = quic::connect(&endpoint, port, at, LIMIT).await.unwrap_err();
            assert!(matches!(error, QuicError::WrongRole { expected, .. } if expected == at), "{error:?}");
            assert!(error.to_string().contains(&format!("is not a {at}")), "{error}");
        }
        let theirs = other.issue(Role::Client, "client-x", &[], LEAF_VALIDITY).unwrap().identity().unwrap();
        for (port, at) in [(worker, Role::Worker), (coordinator, Role::Coordinator)] {
            let error = quic::connect(&attacked.endpoint(&theirs), port, at, LIMIT).await.unwrap_err().to_string();
            assert!(error.contains("another cluster"), "{error}");
        }
        // The peer is authenticated and sends a request that its role may not send.
        for (role, request, name) in [
            (Role::Client, ToCoordinator::WorkerLeave { worker: WorkerId(1) }, "WorkerLeave"),
            (Role::Client, ToCoordinator::RemoveJob { name: "undisturbed".into() }, "RemoveJob"),
            (Role::Client, ToCoordinator::ReplaceJob { toml: String::new(), origin: String::new() }, "ReplaceJob"),
            (Role::Worker, ToCoordinator::SubmitJob { toml: String::new(), origin: String::new() }, "SubmitJob"),
        ] {
            let endpoint = attacked.endpoint(&attacked.identity(role));
            let connection = quic::connect(&endpoint, coordinator, Role::Coordinator, LIMIT).await.unwrap();
            let reply = quic::request(&connection, &request, LIMIT).await.unwrap();
            let FromCoordinator::Refused(refusal) = reply else { panic!("{reply:?}") };
            assert_eq!(refusal.to_string(), format!("a {role} may not send {name}"));
        }
    });
    attacked.ranks_finish("undisturbed");
}
