//! Tests of the public API of the engine. They order events with channels and have generous limits; they never sleep.

mod bounds;
mod ends;
mod failures;
mod items;
mod stats;

use std::{
    convert::Infallible,
    panic::resume_unwind,
    sync::{
        Mutex,
        mpsc::{Receiver, Sender, channel},
    },
    time::Duration,
};

use crate::{Op, Pipeline, PipelinePlan};

/// Limit for an event that has to happen; far longer than any of them takes.
const LONG: Duration = Duration::from_secs(60);

fn cpu<T: Send + 'static, U: Send + 'static>(f: impl Fn(T) -> U + Send + Sync + 'static) -> Op<T, U> {
    Op::cpu(move |item| Ok::<_, Infallible>(f(item)))
}

/// Returns an operation on numbers that blocks until the test releases it, and one sender per number to release it.
fn gated(count: usize) -> (Vec<Sender<()>>, impl Fn(usize) -> usize + Send + Sync + 'static) {
    let (openers, gates): (Vec<Sender<()>>, Vec<Receiver<()>>) = (0..count).map(|_| channel()).unzip();
    let gates: Vec<Mutex<Receiver<()>>> = gates.into_iter().map(Mutex::new).collect();
    (openers, move |item: usize| {
        // A gate whose sender was dropped is open.
        let _ = gates[item].lock().unwrap().recv();
        item
    })
}

fn numbers(pipeline: &Pipeline<usize>) -> Vec<usize> {
    pipeline.iter(LONG).collect::<Result<_, _>>().unwrap()
}

/// Fails on multiples of three, with an error or a panic.
fn no_threes(item: usize) -> Result<usize, String> {
    match item % 6 {
        0 => resume_unwind(Box::new(format!("panic at {item}"))),
        3 => Err(format!("error at {item}")),
        _ => Ok(item),
    }
}

#[test]
fn what_cannot_be_built_is_an_error_with_the_reason() {
    let pipe = |concurrency| Pipeline::builder().source(0..3).pipe("same", cpu(|item: i32| item), concurrency);
    let error = |plan: PipelinePlan<i32>, threads| plan.build(threads).err().unwrap().to_string();
    assert_eq!(error(pipe(0).sink(1), 1), "`concurrency` of stage `same` is 0; it must be at least 1");
    assert_eq!(error(pipe(1).sink(0), 1), "`buffer` of the sink is 0; it must be at least 1");
    assert_eq!(error(pipe(1).sink(1), 0), "`threads` is 0; it must be at least 1");
    assert_eq!(error(pipe(1).pipe("same", cpu(|item| item), 1).sink(1), 1), "there are two stages `same`");
    let lists = Pipeline::builder().source(0..3).aggregate(0).sink(1).build(1);
    assert_eq!(lists.err().unwrap().to_string(), "`count` of stage `aggregate` is 0; it must be at least 1");
}
