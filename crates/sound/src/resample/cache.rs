//! Resamplers that are made once and used by all threads, within a limit of memory.

use std::sync::{Arc, Mutex, PoisonError};

use lru::LruCache;

use super::SoundResampler;
use crate::SoundError;

/// Keeps the resamplers that were used last, up to a number of bytes.
///
/// A dataset has few rates, but a hostile one can have a new rate in each file: then the cache stays within its limit, and each
/// resampler is made anew.
#[derive(Debug)]
pub struct ResamplerCache {
    kept: Mutex<KeptResamplers>,
    limit_bytes: usize,
}

/// The resamplers of pairs of rates.
#[derive(Debug)]
struct KeptResamplers {
    by_rates: LruCache<(u32, u32), Arc<SoundResampler>>,
    bytes: usize,
}

/// What an entry takes beside its weights, about.
const ENTRY_BYTES: usize = 256;

impl ResamplerCache {
    /// Makes an empty cache that keeps at most `limit_bytes`. The weights from 44,100 to 16,000 Hz take 26 KiB.
    #[must_use]
    pub fn new(limit_bytes: usize) -> Self {
        Self { kept: Mutex::new(KeptResamplers { by_rates: LruCache::unbounded(), bytes: 0 }), limit_bytes }
    }

    /// Returns the resampler between two rates in Hz, and makes it if it is not there. Other threads do not wait meanwhile.
    ///
    /// # Errors
    ///
    /// Those of [`SoundResampler::new`].
    pub fn get(&self, from: u32, to: u32) -> Result<Arc<SoundResampler>, SoundError> {
        if let Some(there) = self.lock().by_rates.get(&(from, to)) {
            return Ok(Arc::clone(there));
        }
        let made = Arc::new(SoundResampler::new(from, to)?);
        let kept = &mut *self.lock();
        kept.bytes += made.memory_bytes() + ENTRY_BYTES;
        if let Some(same) = kept.by_rates.put((from, to), Arc::clone(&made)) {
            kept.bytes -= same.memory_bytes() + ENTRY_BYTES;
        }
        while kept.bytes > self.limit_bytes
            && let Some((_, oldest)) = kept.by_rates.pop_lru()
        {
            kept.bytes -= oldest.memory_bytes() + ENTRY_BYTES;
        }
        Ok(made)
    }

    /// Returns the bytes of the resamplers that are kept.
    #[must_use]
    pub fn memory_bytes(&self) -> usize {
        self.lock().bytes
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, KeptResamplers> {
        // No invariant spans a panic: the worst is a resampler that is made anew.
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_resampler_is_made_once() {
        let cache = ResamplerCache::new(1 << 20);
        let first = cache.get(44_100, 16_000).unwrap();
        assert!(Arc::ptr_eq(&first, &cache.get(44_100, 16_000).unwrap()));
        assert!(!Arc::ptr_eq(&first, &cache.get(16_000, 44_100).unwrap()));
        assert_eq!(cache.get(0, 16_000).unwrap_err(), SoundError::NoRate);
    }

    #[test]
    fn many_rates_stay_within_the_limit_and_those_used_last_are_kept() {
        let cache = ResamplerCache::new(3 << 20);
        let common = cache.get(44_100, 16_000).unwrap();
        for rate in 8_001..8_041 {
            cache.get(rate, 16_000).unwrap();
            cache.get(44_100, 16_000).unwrap();
            assert!(cache.memory_bytes() <= 3 << 20, "{} bytes", cache.memory_bytes());
        }
        assert!(Arc::ptr_eq(&common, &cache.get(44_100, 16_000).unwrap()));
        assert!(cache.memory_bytes() > 1 << 20);
    }

    #[test]
    fn what_exceeds_the_limit_alone_is_made_and_not_kept() {
        let cache = ResamplerCache::new(1_000);
        let frames = cache.get(44_100, 16_000).unwrap().frames(44_100);
        assert_eq!((frames, cache.memory_bytes()), (16_000, 0));
    }
}
