//! Calls of the user's functions: which values each of them takes, and the columns that it returns.

use std::cell::RefCell;

use bytes::Bytes;
use spdl_core::job::{Column, Job};

use super::{BadSampleProblem, Decoder, DecoderError, FieldTarget, Prepared, SampleKey, cause, column::DecodeScratch};
use crate::{
    decode::record::SampleRecord,
    transform::{CallKey, Function},
};

/// A function that is called once for each sample.
pub(super) struct PreparedCall {
    /// Name of the first column that it returns.
    pub(super) column: String,
    function: Function,
    takes: Vec<Argument>,
    /// Numbers of the columns of the job that it returns.
    returns: Vec<usize>,
}

/// An argument of a function.
enum Argument {
    /// A value that is decoded for the call.
    Decoded(Box<Prepared>),
    /// The value of this column of the batch.
    InBatch(usize),
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
            if let Some(function) = Function::of_column(column) {
                let takes = vec![Argument::Decoded(Box::new(prepare(column)?))];
                calls.push(Self { column: name, function, takes, returns: vec![number] });
                continue;
            }
            let Some(returned) = column.returned().filter(|returned| returned.number == 0) else { continue };
            let call = &returned.call;
            let argument = |column: &Column| match job.columns.iter().position(|known| known == column) {
                Some(number) => Ok(Argument::InBatch(number)),
                None => prepare(column).map(|prepared| Argument::Decoded(Box::new(prepared))),
            };
            let takes = call.takes().iter().map(argument).collect::<Result<_, _>>()?;
            let place = |name: &str| job.columns.iter().position(|column| column.name == name);
            let returns = call.returns.iter().map(|value| place(&value.name).expect("a valid job has the column"));
            let (function, returns) = (Function::of_call(call), returns.collect());
            calls.push(Self { column: name, function, takes, returns });
        }
        Ok(calls)
    }

    /// Returns the values that are decoded for it, with the first column that it returns.
    pub(super) fn prepared(&self) -> impl Iterator<Item = (&str, &Prepared)> {
        self.takes.iter().filter_map(|argument| match argument {
            Argument::Decoded(prepared) => Some((self.column.as_str(), &**prepared)),
            Argument::InBatch(_) => None,
        })
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
    ) -> Result<(), BadSampleProblem> {
        let targets = RefCell::new(targets);
        let input = |number: usize, place: &mut [u8]| match &call.takes[number] {
            Argument::Decoded(prepared) if !prepared.is_ragged => {
                self.decode_value(prepared, key, record, scratch, &mut FieldTarget::Fixed(place))?;
                Ok(place.len())
            }
            Argument::Decoded(prepared) => {
                let mut value = Bytes::new();
                self.decode_value(prepared, key, record, scratch, &mut FieldTarget::Ragged(&mut value))?;
                place[..value.len()].copy_from_slice(&value);
                Ok(value.len())
            }
            Argument::InBatch(column) => {
                let targets = targets.borrow();
                let value: &[u8] = match &targets[*column] {
                    FieldTarget::Fixed(value) => value,
                    FieldTarget::Ragged(value) => value,
                };
                place[..value.len()].copy_from_slice(value);
                Ok(value.len())
            }
        };
        let output = |number: usize, returned: &[u8]| match &mut targets.borrow_mut()[call.returns[number]] {
            FieldTarget::Fixed(out) => out.copy_from_slice(returned),
            FieldTarget::Ragged(value) => **value = Bytes::copy_from_slice(returned),
        };
        let name = &call.function.name;
        let bad = |problem| BadSampleProblem::Function { function: name.clone(), problem: cause::reason(problem) };
        let key = CallKey { seed: self.inner.seed, epoch: key.epoch, id: key.id.0 };
        let transforms = self.transforms.as_ref().expect("a feed's decoder can call functions");
        transforms.call(&call.function, key, input, output, bad)
    }
}
