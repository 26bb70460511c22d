//! Calls of the user's functions: which values each of them takes, and the columns that it returns.

use std::{cell::RefCell, mem};

use bytes::Bytes;
use spdl_functions::{CallKey, ValueMemory};
use spdl_job::{Callable, Column, Job};

use super::cause::ValueResult;
use super::{BadSampleProblem, Decoder, DecoderError, FieldTarget, Prepared, SampleKey, cause, column::DecodeScratch};
use crate::{decode::record::SampleRecord, transform::Function};

/// A function that is called once for each sample.
pub(super) struct PreparedCall {
    /// Name of the first column that it returns.
    pub(super) column: String,
    callee: Callee,
    takes: Vec<CallArgument>,
    /// Numbers of the columns of the job that it returns.
    returns: Vec<usize>,
}

/// A function.
enum Callee {
    Python(Function),
    /// The name of one in Rust.
    Rust(String),
}

/// An argument of a function.
enum CallArgument {
    /// A value that is decoded for the call, and its size in bytes unless it is ragged.
    Decoded(Box<Prepared>, usize),
    /// The value of this column of the batch.
    InBatch(usize),
}

impl CallArgument {
    fn decoded(prepared: Prepared) -> Self {
        let column = &prepared.column;
        let bytes = column.decoded_shape().max_bytes(column.decoded_dtype());
        Self::Decoded(Box::new(prepared), usize::try_from(bytes).expect("a checked job has small samples"))
    }
}

impl PreparedCall {
    /// Prepares the calls of a job.
    pub(super) fn all(
        job: &Job,
        prepare: impl Fn(&Column) -> Result<Prepared, DecoderError>,
    ) -> Result<Vec<Self>, DecoderError> {
        let mut calls = Vec::new();
        for (number, column) in job.columns.iter().enumerate() {
            let name = column.name.clone();
            if let Some(transform) = &column.transform {
                let callee =
                    Function::of_column(column).map_or_else(|| Callee::rust(&transform.function), Callee::Python);
                let takes = vec![CallArgument::decoded(prepare(column)?)];
                calls.push(Self { column: name, callee, takes, returns: vec![number] });
                continue;
            }
            let Some(returned) = column.returned().filter(|returned| returned.number == 0) else { continue };
            let call = &returned.call;
            let argument = |column: &Column| match job.columns.iter().position(|known| known == column) {
                Some(number) => Ok(CallArgument::InBatch(number)),
                None => prepare(column).map(CallArgument::decoded),
            };
            let takes = call.takes().iter().map(argument).collect::<Result<_, _>>()?;
            let place = |name: &str| job.columns.iter().position(|column| column.name == name);
            let returns = call.returns.iter().map(|value| place(&value.name).expect("a valid job has the column"));
            let callee = Function::of_call(call).map_or_else(|| Callee::rust(&call.function), Callee::Python);
            calls.push(Self { column: name, callee, takes, returns: returns.collect() });
        }
        Ok(calls)
    }

    /// Returns the values that are decoded for the call, each with the first column that the call returns.
    pub(super) fn prepared(&self) -> impl Iterator<Item = (&str, &Prepared)> {
        self.takes.iter().filter_map(|argument| match argument {
            CallArgument::Decoded(prepared, _) => Some((self.column.as_str(), &**prepared)),
            CallArgument::InBatch(_) => None,
        })
    }
}

impl Callee {
    fn name(&self) -> &str {
        match self {
            Self::Python(function) => &function.name,
            Self::Rust(name) => name,
        }
    }

    fn rust(callable: &Callable) -> Self {
        Self::Rust(callable.name.clone())
    }
}

impl Decoder {
    /// Calls a function for a sample whose other columns are decoded.
    pub(super) fn call(
        &self,
        call: &PreparedCall,
        key: SampleKey,
        record: &mut SampleRecord<'_>,
        scratch: &mut DecodeScratch,
        targets: &mut [FieldTarget<'_>],
    ) -> ValueResult {
        let targets = RefCell::new(targets);
        let output = |number: usize, returned: &[u8]| match &mut targets.borrow_mut()[call.returns[number]] {
            FieldTarget::Fixed(out) => out.copy_from_slice(returned),
            FieldTarget::Ragged(value) => **value = Bytes::copy_from_slice(returned),
        };
        let bad_of = |function: &str, problem: String| {
            let (function, problem) = (function.to_owned(), cause::reason(problem));
            BadSampleProblem::Function { function, problem }
        };
        let name = call.callee.name();
        // The arguments are decoded within the call.
        let note = |record: &SampleRecord<'_>, number: usize| {
            if number + 1 == call.takes.len() {
                record.note_call(Some(name));
            }
        };
        let call_key = CallKey { seed: self.inner.seed, epoch: key.epoch, id: key.id.0 };
        let called = match &call.callee {
            Callee::Python(function) => {
                let input = |number: usize, place: &mut [u8]| {
                    let (argument, targets) = (&call.takes[number], &targets.borrow());
                    let written = self.argument(argument, key, record, scratch, targets, |bytes| &mut place[..bytes]);
                    note(record, number);
                    written
                };
                let bad = |problem| bad_of(name, problem);
                let transforms = self.transforms.as_ref().expect("a feed's decoder can call functions");
                transforms.call(function, call_key, input, output, bad)
            }
            Callee::Rust(_) => {
                let function = self.functions.of(&call.column).expect("a feed's decoder has the functions in Rust");
                let mut memory = mem::take(&mut scratch.call);
                let input = |number: usize, value: &mut ValueMemory| {
                    let (argument, targets) = (&call.takes[number], &targets.borrow());
                    let written =
                        self.argument(argument, key, record, scratch, targets, |bytes| value.use_bytes(bytes));
                    note(record, number);
                    written.map(drop)
                };
                let called = function.call(&mut memory, call_key, input, output, |problem| bad_of(name, problem));
                scratch.call = memory;
                called
            }
        };
        record.note_call(None);
        called
    }

    /// Writes an argument into the place that `place` returns for its size, and returns the size.
    fn argument<'p>(
        &self,
        argument: &CallArgument,
        key: SampleKey,
        record: &mut SampleRecord<'_>,
        scratch: &mut DecodeScratch,
        targets: &[FieldTarget<'_>],
        place: impl FnOnce(usize) -> &'p mut [u8],
    ) -> Result<usize, BadSampleProblem> {
        let mut decoded = Bytes::new();
        let value: &[u8] = match argument {
            CallArgument::Decoded(prepared, bytes) if !prepared.is_ragged => {
                self.decode_value(prepared, key, record, scratch, &mut FieldTarget::Fixed(place(*bytes)))?;
                return Ok(*bytes);
            }
            CallArgument::Decoded(prepared, _) => {
                self.decode_value(prepared, key, record, scratch, &mut FieldTarget::Ragged(&mut decoded))?;
                &decoded
            }
            CallArgument::InBatch(column) => match &targets[*column] {
                FieldTarget::Fixed(value) => value,
                FieldTarget::Ragged(value) => value,
            },
        };
        place(value.len()).copy_from_slice(value);
        Ok(value.len())
    }
}
