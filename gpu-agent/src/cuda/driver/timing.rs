//! Blocks of launches between events.
//!
//! Everything is enqueued before anything is waited for: a wait in between leaves the device idle, and the next block would begin on
//! a device that has gone to sleep. A block of several steps is captured into a CUDA graph and replayed, so that the gaps between
//! its steps are the device's own (about a microsecond) and not the host's (two or more for each `cuLaunchKernel`); a block of one is
//! launched plainly. A few hundred microseconds of work of ours come first, which give the host a start.

use std::collections::HashMap;
use std::collections::hash_map::Entry;

use super::CudaDevice;
use super::api::{Context, Event, Graph};
use crate::cuda::device::{Block, DeviceError, Done, Span, Step};
use crate::cuda::ops::launch;

/// Bytes that are read over and over before the first block: few, so that what lies in the L2 cache stays there.
const HEAD_START_BYTES: u64 = 64 << 10;
/// How often.
const HEAD_START_PASSES: u32 = 512;

impl CudaDevice {
    pub(super) fn time_blocks(&mut self, blocks: &[Block]) -> Done<Vec<f64>> {
        if self.persisting_lines {
            Context::reset_persisting_lines()?;
        }
        let flush = if blocks.iter().any(|block| block.cold) { Some(self.flush_memory()?) } else { None };
        self.make_events(2 * blocks.len())?;
        let graphs = self.graphs(blocks)?;
        let enqueued = self.head_start().and_then(|()| self.enqueue_blocks(blocks, &graphs, flush));
        // Nothing stays behind for whoever comes next.
        let waited = self.stream.wait();
        enqueued.and(waited)?;
        self.events.chunks_exact(2).take(blocks.len()).map(|pair| pair[1].since(&pair[0])).collect()
    }

    fn enqueue_blocks(&self, blocks: &[Block], graphs: &HashMap<&[Step], Graph>, flush: Option<Span>) -> Done<()> {
        for (number, (block, events)) in blocks.iter().zip(self.events.chunks_exact(2)).enumerate() {
            if let Some(span) = flush.filter(|_| block.cold) {
                launch::flush(&mut self.machine(), span, number as u64)?;
            }
            self.stream.record(&events[0])?;
            match graphs.get(block.steps.as_slice()) {
                Some(graph) => self.stream.replay(graph)?,
                None => block.steps.iter().try_for_each(|step| self.enqueue(step))?,
            }
            self.stream.record(&events[1])?;
        }
        Ok(())
    }

    pub(super) fn time_sweep(&mut self, from: Span, to: Option<Span>, passes: u32) -> Done<f64> {
        self.make_events(2)?;
        self.head_start()?;
        self.stream.record(&self.events[0])?;
        launch::sweep(&mut self.machine(), from, to, passes)?;
        self.stream.record(&self.events[1])?;
        self.stream.wait()?;
        self.events[1].since(&self.events[0])
    }

    pub(super) fn enqueue(&self, step: &Step) -> Done<()> {
        match step {
            Step::Launch(run) => self.kernel(run.kernel)?.enqueue(run, &self.stream),
            Step::Zero(span) => {
                self.check([*span])?;
                // SAFETY: the span is in an allocation.
                unsafe { self.stream.zero(span.address, span.bytes) }
            }
        }
    }

    /// One graph for each sequence of several steps.
    fn graphs<'b>(&self, blocks: &'b [Block]) -> Done<HashMap<&'b [Step], Graph>> {
        let mut graphs = HashMap::new();
        for Block { steps, .. } in blocks.iter().filter(|block| block.steps.len() > 1) {
            if let Entry::Vacant(entry) = graphs.entry(steps.as_slice()) {
                entry.insert(self.stream.capture(|| steps.iter().try_for_each(|step| self.enqueue(step)))?);
            }
        }
        Ok(graphs)
    }

    fn make_events(&mut self, count: usize) -> Done<()> {
        while self.events.len() < count {
            self.events.push(Event::new()?);
        }
        Ok(())
    }

    fn head_start(&self) -> Done<()> {
        let mut machine = self.machine();
        let scratch = launch::Machine::scratch(&machine);
        let span = scratch.part(0, HEAD_START_BYTES).ok_or_else(|| DeviceError::Device("the scratch memory is too small".into()))?;
        launch::sweep(&mut machine, span, None, HEAD_START_PASSES)
    }

    /// Memory of twice the size of the L2 cache, kept.
    fn flush_memory(&mut self) -> Done<Span> {
        if let Some(span) = self.flush {
            return Ok(span);
        }
        let span = Context::allocate((2 * self.facts.l2_bytes).max(1 << 20).next_multiple_of(16))?;
        self.flush = Some(span);
        Ok(span)
    }
}
