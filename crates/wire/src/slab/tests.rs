//! Tests of the slab: states, bounds, and the checks of a peer's descriptor.

use super::*;

fn attach_clone(slab: &Slab) -> Slab {
    let fd = slab.fd().expect("shared").try_clone_to_owned().unwrap();
    Slab::attach(fd, slab.slots(), slab.slot_stride() as u64).unwrap()
}

#[test]
fn a_slot_goes_from_free_to_filling_to_published_and_back() {
    let slab = Slab::private(2, PAGE_BYTES + 904).unwrap();
    assert_eq!(slab.slot_stride(), 2 * PAGE_BYTES);
    let mut filling = slab.try_take(1).unwrap();
    assert!(slab.try_take(1).is_none() && slab.read(1).is_none() && !slab.release(1));
    filling[2 * PAGE_BYTES - 1] = 7;
    assert_eq!(filling.publish(), 1);
    assert!(slab.try_take(1).is_none());
    let reader = slab.read(1).unwrap();
    let other = reader.clone();
    assert_eq!((reader[2 * PAGE_BYTES - 1], other[2 * PAGE_BYTES - 1]), (7, 7));
    assert!(!slab.release(1), "it is being read");
    drop((reader, other));
    assert!(slab.release(1) && !slab.release(1));
    assert!(slab.try_take(1).is_some());
    assert!(slab.try_take(2).is_none() && slab.read(2).is_none() && !slab.release(2));
}

#[test]
fn a_slot_dropped_unpublished_is_free_again() {
    let slab = Slab::private(1, 1).unwrap();
    drop(slab.take_any().unwrap());
    assert_eq!(slab.free_slots(), 1);
    let taken = slab.take_any().unwrap();
    assert_eq!((slab.free_slots(), slab.take_any().is_none()), (0, true));
    taken.publish();
    assert_eq!(slab.free_slots(), 0);
}

#[test]
fn an_attached_slab_shows_what_the_owner_filled_and_cannot_be_filled_itself() {
    let owner = Slab::shared(3, 10).unwrap();
    let peer = attach_clone(&owner);
    let mut slot = owner.try_take(2).unwrap();
    slot[..4].copy_from_slice(b"spdl");
    slot.publish();
    assert!(peer.read(2).is_none(), "the owner has not announced it yet");
    assert!(peer.try_take(2).is_none(), "only the owner fills");
    assert!(peer.publish_filled(2) && !peer.publish_filled(2) && !peer.publish_filled(3));
    let read = peer.read(2).unwrap();
    drop(owner);
    assert_eq!(&read[..4], b"spdl");
    assert!(!Slab::private(1, 1).unwrap().publish_filled(0));
}

#[test]
fn slots_outlive_the_slab_and_move_between_threads() {
    let slab = Slab::private(1, 4096).unwrap();
    let mut slot = slab.take_any().unwrap();
    drop(slab);
    let slot = std::thread::spawn(move || {
        slot.fill(9);
        slot
    })
    .join()
    .unwrap();
    assert!(slot.iter().all(|byte| *byte == 9));
}

/// A device reads the pages that were locked. They are the pages of the slab only if a fork does not separate them.
#[test]
fn writes_after_a_fork_go_to_the_pages_that_were_there_before_it() {
    use std::{io::Read as _, os::unix::process::CommandExt as _, process::Command};

    for slab in [Slab::private(1, 4096).unwrap(), Slab::shared(1, 4096).unwrap()] {
        let mut slot = slab.take_any().unwrap();
        slot[..6].copy_from_slice(b"before");
        let (mut to_child, mut to_parent) = (std::io::pipe().unwrap(), std::io::pipe().unwrap());
        let (in_child, writer) = (slab.clone(), to_parent.1);
        let mut child = Command::new("true");
        let wait_and_compare = move || {
            std::io::Write::write_all(&mut &writer, b"f")?;
            (&to_child.0).read_exact(&mut [0])?;
            // SAFETY: the mapping lives as long as `in_child`, and its parent has ended its write.
            let seen = unsafe { std::slice::from_raw_parts(in_child.slot_ptr(0), 5) };
            if seen == b"after" { Ok(()) } else { Err(std::io::ErrorKind::InvalidData.into()) }
        };
        // SAFETY: the closure makes system calls and allocates nothing, so it may run between fork and exec.
        unsafe { child.pre_exec(wait_and_compare) };
        let ended = std::thread::spawn(move || child.status());
        to_parent.0.read_exact(&mut [0]).unwrap();
        slot[..5].copy_from_slice(b"after");
        std::io::Write::write_all(&mut to_child.1, b"w").unwrap();
        assert!(ended.join().unwrap().expect("the child reads what its parent wrote after the fork").success());
    }
}

#[test]
fn sizes_that_no_slab_has_are_refused() {
    for (slots, bytes) in [(0, 1), (1, 0), (MAX_SLOTS + 1, 1), (MAX_SLOTS, usize::MAX), (2, MAX_SLAB_BYTES as usize)] {
        assert!(matches!(Slab::private(slots, bytes), Err(SlabError::Size { .. })), "{slots} x {bytes}");
        assert!(matches!(Slab::shared(slots, bytes), Err(SlabError::Size { .. })), "{slots} x {bytes}");
    }
    assert_eq!(slot_stride(usize::MAX), None);
}

#[test]
fn a_descriptor_that_is_not_the_sealed_slab_is_refused() {
    let owner = Slab::shared(2, PAGE_BYTES).unwrap();
    let page = PAGE_BYTES as u64;
    let fd = || owner.fd().unwrap().try_clone_to_owned().unwrap();
    for (slots, stride) in
        [(3, page), (1, page), (2, 2 * page), (2, 100), (0, page), (2, u64::MAX - (page - 1)), (2, 0)]
    {
        assert!(Slab::attach(fd(), slots, stride).is_err(), "{slots} x {stride}");
    }
    let file: OwnedFd = tempfile::tempfile().unwrap().into();
    rustix::fs::ftruncate(&file, 2 * page).unwrap();
    let error = Slab::attach(file, 2, page).unwrap_err().to_string();
    assert!(error.contains("seal"), "{error}");
    let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
    let unsealed = rustix::fs::memfd_create("unsealed", flags).unwrap();
    rustix::fs::ftruncate(&unsealed, 2 * page).unwrap();
    assert!(matches!(Slab::attach(unsealed, 2, page), Err(SlabError::Foreign { .. })));
}

#[test]
fn the_size_of_a_shared_slab_cannot_be_changed() {
    let slab = Slab::shared(1, 4096).unwrap();
    let fd = slab.fd().unwrap();
    assert!(rustix::fs::ftruncate(fd, 0).is_err());
    assert!(rustix::fs::ftruncate(fd, 1 << 20).is_err());
}

#[test]
fn each_taken_slot_has_one_taker_at_a_time() {
    let slab = Slab::private(2, 4096).unwrap();
    let taken: usize = std::thread::scope(|scope| {
        let takers: Vec<_> = (0..4)
            .map(|taker| {
                let slab = slab.clone();
                scope.spawn(move || {
                    let mut taken = 0;
                    for _ in 0..2000 {
                        let Some(mut slot) = slab.take_any() else { continue };
                        slot[..64].fill(taker);
                        assert!(slot[..64].iter().all(|byte| *byte == taker));
                        let slot = slot.publish();
                        assert!(slab.release(slot));
                        taken += 1;
                    }
                    taken
                })
            })
            .collect();
        takers.into_iter().map(|taker| taker.join().unwrap()).sum()
    });
    assert!(taken > 0);
    assert_eq!(slab.free_slots(), 2);
}

/// Returns the bytes that the kernel holds for a slab.
fn kernel_bytes(slab: &Slab) -> u64 {
    rustix::fs::fstat(slab.fd().expect("shared")).unwrap().st_blocks as u64 * 512
}

#[test]
fn a_slot_keeps_the_pages_of_its_batch_and_gives_the_others_back() {
    let slab = Slab::shared(2, 8 << 20).unwrap();
    let [large, small, least] = [5_000_000, 1_000_000, 5000].map(|bytes: usize| bytes.next_multiple_of(PAGE_BYTES));
    assert_eq!(kernel_bytes(&slab), 0, "it is address space");
    let mut slot = slab.try_take(1).unwrap();
    slot[..large].fill(7);
    assert_eq!(slot.keep(5_000_000), large);
    assert_eq!((kernel_bytes(&slab), slab.held_bytes(1)), (large as u64, large));
    // A batch that is little smaller gives nothing back: the next one may be larger again.
    assert_eq!(slot.keep(4_100_000), large);
    assert_eq!(slot.keep(1_000_000), small);
    assert_eq!((kernel_bytes(&slab), slot[small - 1], slot[small]), (small as u64, 7, 0));
    slot.publish();
    assert_eq!(slab.give_back(1, 0), slab.held_bytes(1), "it holds a batch");
    assert!(slab.release(1));
    assert_eq!((slab.give_back(1, 5000), slab.held_bytes(1)), (least, least));
    assert_eq!(slab.try_take(1).unwrap()[least - 1], 7);
    assert_eq!(slab.give_back(0, 0), 0, "nothing was kept in it");
}

#[test]
fn a_slot_that_a_device_has_locked_keeps_its_pages() {
    let slab = Slab::private(2, 1 << 20).unwrap();
    let mut slot = slab.try_take(0).unwrap();
    slot.fill(7);
    slot.keep(1 << 20);
    slot.publish();
    assert!(!slab.is_locked(0));
    slab.lock(0);
    assert!(slab.is_locked(0) && !slab.is_locked(1) && slab.release(0));
    assert_eq!(slab.give_back(0, 0), 1 << 20);
    let mut slot = slab.try_take(0).unwrap();
    assert_eq!((slot.keep(100), slot.give_back(0)), (1 << 20, 1 << 20));
    assert!(slot.iter().all(|byte| *byte == 7), "the pages that the device reads");
}
