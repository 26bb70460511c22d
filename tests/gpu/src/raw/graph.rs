//! Capture of a stream's work in a graph, and graphs.

use std::ptr;

use cudarc::driver::sys::{CUgraph, CUgraphExec};

use super::{TrainerContext, TrainerStream, call};
use crate::driver;

/// Which threads may not make calls that a capture forbids, such as an allocation or a query of an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CaptureMode {
    /// All threads of the process; PyTorch's default.
    Global = 0,
    /// The thread that captures.
    ThreadLocal = 1,
}

/// Captured work, ready to launch any number of times.
#[derive(Debug)]
pub struct TrainerGraph {
    graph: CUgraph,
    executable: CUgraphExec,
}

impl TrainerContext {
    /// Begins to capture the work that is put on a stream, which does not run meanwhile.
    pub fn begin_capture(&self, stream: TrainerStream, mode: CaptureMode) {
        call!(cuStreamBeginCapture_v2(stream.0, mode as u32));
    }

    /// Ends a capture.
    ///
    /// # Errors
    /// Returns the driver's reason when a call during the capture has made it invalid.
    pub fn end_capture(&self, stream: TrainerStream) -> Result<TrainerGraph, String> {
        let mut graph = ptr::null_mut();
        // SAFETY: the stream lives, and the pointer is to a local of that type.
        let result = unsafe { driver::cuStreamEndCapture(stream.0, &raw mut graph) };
        if result != 0 {
            return Err(format!("the capture failed: `cuStreamEndCapture` returned {}", driver::name(result)));
        }
        let mut executable = ptr::null_mut();
        call!(cuGraphInstantiateWithFlags(&raw mut executable, graph, 0));
        Ok(TrainerGraph { graph, executable })
    }

    /// Enqueues a graph's work.
    pub fn launch_graph(&self, stream: TrainerStream, graph: &TrainerGraph) {
        call!(cuGraphLaunch(graph.executable, stream.0));
    }
}

impl Drop for TrainerGraph {
    fn drop(&mut self) {
        call!(cuGraphExecDestroy(self.executable));
        call!(cuGraphDestroy(self.graph));
    }
}
