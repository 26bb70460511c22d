//! Tests of fetching with other workers that have blocks, do not, are late, or lie.
#![allow(clippy::single_range_in_vec_init, reason = "what is wanted is a list of ranges")]

use futures::FutureExt;
use spdl_control::peers::{Readers, SessionReaders};
use spdl_order::{OrderParams, Plan};

use super::*;
use crate::fetch::{
    Fetcher, PlannedBlocks,
    tests::{BLOCK, FetchFixture, fixture},
};

const BLOCKS: u32 = 24;
const SESSION: SessionId = SessionId(3);
const ME: WorkerId = WorkerId(1);
const OTHER: WorkerId = WorkerId(2);
const OLD: WorkerId = WorkerId(3);

/// What the other workers do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Behaviour {
    Answer,
    /// Answer if they need not fetch the block.
    AnswerFromCache,
    Miss,
    Fail,
    /// Never answer.
    Hang,
    Lie,
}

#[derive(Debug)]
struct FakePeers {
    content: Vec<u8>,
    behaviour: Behaviour,
    /// The workers that were asked, and whether as owners.
    asked: Arc<Mutex<Vec<(WorkerId, bool)>>>,
    put_aside: Arc<Mutex<Vec<WorkerId>>>,
}

impl AskPeer for FakePeers {
    fn is_usable(&self, _: WorkerId) -> bool {
        true
    }

    fn put_aside(&self, worker: WorkerId) {
        self.put_aside.lock().push(worker);
    }

    fn keep(&self, _: &PeerMap) {}

    fn ask<'a>(
        &'a self,
        peer: PeerAddress,
        request: &'a BlockRequest,
        late: &'a Notify,
    ) -> BoxFuture<'a, Result<Option<Bytes>, QuicError>> {
        self.asked.lock().push((peer.worker, request.is_for_owner));
        let wanted = request.wanted.iter().map(|range| range.start as usize..range.end as usize);
        let mut bytes: Vec<u8> = wanted.flat_map(|range| self.content[range].to_vec()).collect();
        async move {
            match self.behaviour {
                Behaviour::AnswerFromCache if request.is_for_owner => Ok(None),
                Behaviour::Answer | Behaviour::AnswerFromCache => Ok(Some(bytes.into())),
                Behaviour::Miss => Ok(None),
                Behaviour::Fail => Err(QuicError::PortClosed { address: peer.quic }),
                Behaviour::Hang => {
                    late.notify_one();
                    std::future::pending().await
                }
                Behaviour::Lie => {
                    bytes[0] ^= 1;
                    Ok(Some(bytes.into()))
                }
            }
        }
        .boxed()
    }
}

/// Two ranks, one of which has its home at this worker. Before, there was one rank, with its home at a third worker.
struct PeersFixture {
    data: FetchFixture,
    fetcher: Arc<Fetcher>,
    plan: Plan,
    asked: Arc<Mutex<Vec<(WorkerId, bool)>>>,
    put_aside: Arc<Mutex<Vec<WorkerId>>>,
}

fn map() -> PeerMap {
    let workers = [ME, OTHER, OLD].map(|worker| PeerAddress { worker, quic: ([127, 0, 0, 1], 1).into() });
    let readers = |homes: &[u16]| Readers {
        world: homes.len() as u32,
        global_batch: 8,
        homes: homes.iter().copied().map(Some).collect(),
    };
    let session = SessionReaders { session: SESSION, now: readers(&[0, 1]), before: vec![readers(&[2])] };
    PeerMap { version: 1, workers: workers.into(), sessions: vec![session] }
}

impl PeersFixture {
    async fn new(behaviour: Behaviour) -> Self {
        let data = fixture(BLOCKS.into()).await;
        let fetcher = data.fetcher(100 * BLOCK, None);
        let (asked, put_aside) = (Arc::<Mutex<Vec<_>>>::default(), Arc::<Mutex<Vec<_>>>::default());
        let content = data.content.clone();
        let peers = FakePeers { content, behaviour, asked: asked.clone(), put_aside: put_aside.clone() };
        fetcher.peers.start(ME, Box::new(peers));
        fetcher.peers.set_coordinated(true);
        fetcher.peers.set_map(map());
        let order = OrderParams { version: 1, lanes: 4, window: 10, shuffle: true };
        let plan = Plan::new(&[10; BLOCKS as usize], 5, order).unwrap();
        Self { data, fetcher, plan, asked, put_aside }
    }

    /// Returns a block that rank `rank` owns.
    fn block_of(&self, rank: u32) -> BlockPlace {
        let block = (0..BLOCKS).find(|block| self.plan.owner(*block, 8, 2) == Some(rank)).expect("it owns some");
        BlockPlace {
            peers: Some(BlockPeers::new(SESSION, self.plan.clone(), PlannedBlocks::default())),
            ..self.data.block(block)
        }
    }

    /// Fetches a whole block, checks its bytes, and returns the number of reads of the store, and who was asked.
    async fn fetch(&self, place: &BlockPlace) -> (u64, Vec<(WorkerId, bool)>) {
        let before = self.data.store.reads();
        let block = self.fetcher.fetch(place, vec![place.range.clone()]).await.unwrap();
        self.data.check(&block, place.range.clone());
        (self.data.store.reads() - before, std::mem::take(&mut *self.asked.lock()))
    }
}

#[tokio::test]
async fn a_block_of_another_worker_comes_from_there_once_for_all_who_want_it() {
    let fixture = PeersFixture::new(Behaviour::Answer).await;
    let place = fixture.block_of(1);
    let fetches = (0..50).map(|_| fixture.fetcher.fetch(&place, vec![place.range.clone()]));
    for block in futures::future::join_all(fetches).await {
        fixture.data.check(&block.unwrap(), place.range.clone());
    }
    assert_eq!((fixture.data.store.reads(), &*fixture.asked.lock()), (0, &vec![(OTHER, true)]));
    let stats = fixture.fetcher.peers.stats();
    assert_eq!((stats.received_blocks, stats.received_bytes), (1, BLOCK));
}

#[tokio::test]
async fn an_owner_asks_those_that_may_have_kept_the_block_and_then_the_store() {
    let kept = PeersFixture::new(Behaviour::AnswerFromCache).await;
    assert_eq!(kept.fetch(&kept.block_of(0)).await, (0, vec![(OLD, false)]));
    let gone = PeersFixture::new(Behaviour::Miss).await;
    assert_eq!(gone.fetch(&gone.block_of(0)).await, (1, vec![(OLD, false)]));
    assert_eq!(gone.fetch(&gone.block_of(1)).await, (1, vec![(OTHER, true), (OLD, false)]));
    assert_eq!(gone.fetcher.peers.stats().misses, 3);
}

#[tokio::test]
async fn a_block_waits_for_the_map_of_a_coordinator_that_answers() {
    let fixture = PeersFixture::new(Behaviour::Answer).await;
    let peers = &fixture.fetcher.peers;
    peers.set_map(PeerMap::default());
    peers.set_coordinated(false);
    assert_eq!(fixture.fetch(&fixture.block_of(1)).await, (1, vec![]), "nobody tells who has the block");
    fixture.fetcher.memory.lock().retire(&fixture.block_of(1).key);
    peers.set_coordinated(true);
    let place = fixture.block_of(1);
    let mut fetching = std::pin::pin!(fixture.fetch(&place));
    assert!(futures::poll!(&mut fetching).is_pending());
    peers.set_map(map());
    assert_eq!(fetching.await, (0, vec![(OTHER, true)]));
}

#[tokio::test]
async fn who_fetches_a_block_for_others_asks_no_other_owner() {
    let fixture = PeersFixture::new(Behaviour::Miss).await;
    let mut place = fixture.block_of(1);
    place.peers.as_mut().unwrap().is_owner = true;
    assert_eq!(fixture.fetch(&place).await, (1, vec![(OLD, false)]));
}

#[tokio::test]
async fn a_peer_that_fails_or_is_late_costs_a_request_of_the_store() {
    for behaviour in [Behaviour::Fail, Behaviour::Hang] {
        let fixture = PeersFixture::new(behaviour).await;
        assert_eq!(fixture.fetch(&fixture.block_of(1)).await.0, 1, "{behaviour:?}");
        let stats = fixture.fetcher.peers.stats();
        assert_eq!((stats.failures, stats.late), if behaviour == Behaviour::Fail { (2, 0) } else { (0, 1) });
    }
}

#[tokio::test]
async fn records_that_are_fetched_for_one_use_come_from_caches_of_others() {
    let fixture = PeersFixture::new(Behaviour::AnswerFromCache).await;
    let place = fixture.block_of(1);
    let wanted = place.range.start + 100..place.range.start + 200;
    let records = fixture.fetcher.fetch(&place, vec![wanted.clone()]).await.unwrap();
    fixture.data.check(&records, wanted);
    assert_eq!((fixture.data.store.reads(), &*fixture.asked.lock()), (0, &vec![(OTHER, false)]));
    assert_eq!(fixture.fetcher.store_stats().single_use_bytes, 0);
}

#[tokio::test]
async fn wrong_bytes_of_a_peer_are_fetched_from_the_store() {
    let fixture = PeersFixture::new(Behaviour::Lie).await;
    let place = fixture.block_of(1);
    let block = fixture.fetcher.fetch(&place, vec![place.range.clone()]).await.unwrap();
    let first = place.range.start as usize;
    assert_ne!(block.slice(place.range.clone()).unwrap()[0], fixture.data.content[first]);
    drop(block);
    fixture.asked.lock().clear();
    // The checksums of the records have shown it.
    fixture.fetcher.discard(&place.key);
    assert_eq!(*fixture.put_aside.lock(), [OTHER]);
    assert_eq!(fixture.fetch(&place).await, (1, vec![]));
    // What the store gives is no worker's fault.
    fixture.fetcher.discard(&place.key);
    assert_eq!(*fixture.put_aside.lock(), [OTHER]);
}

/// Shortest and longest time for which a rank that attaches is waited for.
const NONE: Duration = Duration::ZERO;
const LONG: Duration = Duration::from_secs(60);

#[derive(Debug)]
struct Blocks(BlockPlace);

impl BlockSource for Blocks {
    fn place(&self, _: u32) -> Option<BlockPlace> {
        Some(self.0.clone())
    }
}

#[tokio::test]
async fn a_block_is_fetched_for_others_by_its_owner_alone_and_while_ranks_read_the_dataset() {
    let fixture = PeersFixture::new(Behaviour::Miss).await;
    let peers = &fixture.fetcher.peers;
    let own = fixture.block_of(0);
    assert!(peers.place_of_owner(SESSION, own.key, NONE).await.is_none(), "no rank has come");
    let attach = async {
        tokio::task::yield_now().await;
        let blocks: Arc<dyn BlockSource> = Arc::new(Blocks(own.clone()));
        peers.add_source(SESSION, own.key.dataset, &blocks);
        blocks
    };
    let (place, blocks) = tokio::join!(peers.place_of_owner(SESSION, own.key, LONG), attach);
    assert!(place.expect("a rank came").peers.unwrap().is_owner);
    assert!(peers.place_of_owner(SESSION, fixture.block_of(1).key, NONE).await.is_none(), "another worker owns it");
    assert!(peers.place_of_owner(SessionId(9), own.key, NONE).await.is_none(), "another session");
    drop(blocks);
    assert!(peers.place_of_owner(SESSION, own.key, NONE).await.is_none(), "the rank has left");
}
