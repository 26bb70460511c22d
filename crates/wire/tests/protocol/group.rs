//! The channel of a group: slabs among messages, refusals, and a leader that takes the place of another.

use std::{
    fs::File,
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
};

use spdl_control::messages::{FromLeader, MemberAttach, Start, StartReason, ToLeader};
use spdl_testkit::home::session;
use spdl_types::Position;
use spdl_wire::{
    group::{GroupListener, GroupName, LeaderLink, MemberLink, attach},
    home::ChannelError,
    slab::Slab,
};

fn request(member: u32) -> MemberAttach {
    MemberAttach {
        member,
        members: 3,
        launch: None,
        start: Start::Beginning,
        fingerprint: None,
        global_batch: None,
        epochs: None,
        client: format!("process {member}"),
    }
}

/// Returns the number of a slab's memory.
fn memory(slab: &Slab) -> u64 {
    File::from(slab.fd().unwrap().try_clone_to_owned().unwrap()).metadata().unwrap().ino()
}

async fn attached(listener: &mut GroupListener, path: &Path, member: u32) -> (MemberLink, LeaderLink) {
    let accepting = async {
        let request = listener.accept().await.unwrap();
        assert_eq!(request.attach.member, member);
        request.accept(session(), StartReason::Beginning, "process 0".into()).await.unwrap()
    };
    let (link, attached) = tokio::join!(accepting, attach(path, request(member)));
    let (got, reason, leader, to_leader) = attached.unwrap();
    assert_eq!((got, reason, leader.as_str()), (session(), StartReason::Beginning, "process 0"));
    (link, to_leader)
}

fn socket() -> (tempfile::TempDir, PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("group");
    (folder, path)
}

#[tokio::test]
async fn each_slab_comes_with_its_message_however_many_are_on_their_way() {
    let (_folder, path) = socket();
    let mut listener = GroupListener::start(&path).unwrap();
    let (mut member, mut leader) = attached(&mut listener, &path, 1).await;
    let slabs = [1, 2, 3].map(|slots| Slab::shared(slots, 5000).unwrap());
    let filled = |link, slot| FromLeader::Filled { link, slot, used_bytes: 5 };
    for (link, slab) in (0..).zip(&slabs) {
        member.send(&FromLeader::Alive).await.unwrap();
        member.send_slab(link, slab).await.unwrap();
        member.send(&filled(link, 0)).await.unwrap();
    }
    for (number, slab) in (0..).zip(&slabs) {
        assert_eq!(leader.recv().await.unwrap(), Some(FromLeader::Alive));
        let Some(FromLeader::Slab { link, slots, slot_stride }) = leader.recv().await.unwrap() else { panic!() };
        assert_eq!((link, slots), (number, slab.slots()));
        let mapped = leader.take_slab(slots, slot_stride).unwrap();
        assert_eq!(memory(&mapped), memory(slab));
        assert!(mapped.try_take(0).is_none(), "only the leader's side fills it");
        assert_eq!(leader.recv().await.unwrap(), Some(filled(number, 0)));
    }
    let error = leader.take_slab(1, 8192).unwrap_err().to_string();
    assert!(error.contains("without a descriptor"), "{error}");
    let taken = ToLeader::Taken { restarts: 1, position: Position::new(0, 8) };
    leader.send(&taken).await.unwrap();
    assert_eq!(member.recv().await.unwrap(), Some(taken));
    drop(leader);
    assert_eq!(member.recv().await.unwrap(), None);
}

#[tokio::test]
async fn a_leader_takes_the_place_of_another_and_members_reach_only_it() {
    let (_folder, path) = socket();
    let old = GroupListener::start(&path).unwrap();
    let mut new = GroupListener::start(&path).unwrap();
    attached(&mut new, &path, 1).await;
    drop(old);
    attached(&mut new, &path, 2).await;
    let refusing = async { new.accept().await.unwrap().refuse("process 1 has its place".into(), true).await };
    let ((), refused) = tokio::join!(refusing, attach(&path, request(1)));
    let error = refused.unwrap_err();
    assert!(matches!(&error, ChannelError::Refused { is_retryable: true, .. }), "{error}");
    assert!(error.to_string().contains("process 1 has its place"), "{error}");
    drop(new);
    let error = attach(&path, request(1)).await.unwrap_err();
    assert!(matches!(&error, ChannelError::Local(_)) && error.is_retryable(), "{error}");
}

#[tokio::test]
async fn a_file_that_is_no_socket_is_left_alone() {
    let (_folder, path) = socket();
    std::fs::write(&path, "mine").unwrap();
    let error = GroupListener::start(&path).unwrap_err().to_string();
    assert!(error.contains("is not a socket"), "{error}");
    assert_eq!(std::fs::read_to_string(&path).unwrap(), "mine");
}

#[test]
fn each_rank_of_each_run_has_a_socket_of_its_own() {
    let name = GroupName { coordinators: "head:7000", job: "train", run: "a", rank: 0, world: 2 };
    let others = [
        GroupName { coordinators: "other:7000", ..name },
        GroupName { job: "val", ..name },
        GroupName { run: "b", ..name },
        GroupName { rank: 1, ..name },
        GroupName { world: 4, ..name },
    ];
    let path = name.socket().unwrap();
    assert_eq!(path, name.socket().unwrap());
    assert!(others.iter().all(|other| other.socket().unwrap() != path));
}
