//! A second request beside one that is slow.

use std::{pin::pin, sync::Arc, time::Instant};

use futures::future::{Either, select};
use parking_lot::Mutex;
use spdl_feed::requests::HedgePolicy;

use super::{
    counted::RequestCounts,
    limited::RequestLimits,
    request::{AskStore, RequestError, Response, StoreRequest},
    units::ReadState,
};

/// Makes a request a second time if the first is slow, within the limit of requests.
#[derive(Debug)]
pub(super) struct Hedged<I> {
    pub(super) inner: I,
    pub(super) policy: Mutex<HedgePolicy>,
    pub(super) limits: Arc<RequestLimits>,
    pub(super) counts: Arc<RequestCounts>,
}

impl<I: AskStore> AskStore for Hedged<I> {
    async fn ask(&self, request: StoreRequest<'_>) -> Result<Response, RequestError> {
        let (started, wanted) = (Instant::now(), request.wanted_bytes());
        let result = self.race(request, wanted).await;
        match &result {
            Ok(got) if wanted.is_some() => self.policy.lock().note_done(got.len(), started.elapsed()),
            Ok(_) => {}
            Err(_) => self.policy.lock().note_failed(),
        }
        result
    }
}

impl<I: AskStore> Hedged<I> {
    /// Returns the first good answer of a request and, if it is slow, of a second one. The other is dropped, which
    /// cancels it.
    async fn race(&self, request: StoreRequest<'_>, wanted: Option<u64>) -> Result<Response, RequestError> {
        let mut first = pin!(self.inner.ask(request));
        let Some(mut pause) = wanted.and_then(|bytes| self.policy.lock().slow_after(bytes)) else {
            return first.await;
        };
        // The allowance grows with each request that is answered meanwhile, so a hedge that it does not cover now may
        // be allowed later.
        let _permit = loop {
            first = match select(first, pin!(tokio::time::sleep(pause))).await {
                Either::Left((result, _)) => return result,
                Either::Right(((), first)) => first,
            };
            if let Some(permit) = self.limits.beside()
                && self.policy.lock().take_hedge()
            {
                break permit;
            }
            pause *= 2;
        };
        let _in_flight = self.limits.units.enter(ReadState::InFlight);
        self.counts.stats.lock().hedges += 1;
        let (result, hedge_won) = match select(first, pin!(self.inner.ask(request))).await {
            Either::Left((Err(_), hedge)) => (hedge.await, true),
            Either::Right((Err(_), first)) => (first.await, false),
            Either::Left((result, _)) => (result, false),
            Either::Right((result, _)) => (result, true),
        };
        self.counts.stats.lock().hedge_wins += u64::from(hedge_won && result.is_ok());
        result
    }
}
