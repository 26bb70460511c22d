//! The store whose state is in memory, for tests.

use spdl_control::coordinator::{Change, Durable, MemoryState};

use super::{StateStore, StateStoreError};

impl StateStore for MemoryState {
    fn load(&self) -> Result<Durable, StateStoreError> {
        Ok(self.durable())
    }

    fn apply(&mut self, changes: &[Change]) -> Result<(), StateStoreError> {
        Self::apply(self, changes);
        Ok(())
    }
}

#[test]
fn state_in_memory_conforms() {
    super::conformance::run(|state: Option<MemoryState>| state.unwrap_or_default());
}
