//! The net: one hidden layer, which is enough to learn colours.

use candle_core::{DType, Device, Result, Tensor, Var};
use candle_nn::{Linear, Module, VarBuilder, VarMap, linear};

const HIDDEN: usize = 32;

/// A net whose weights and gradients can be read as one list of numbers, to share them with other ranks.
pub(crate) struct Net {
    weights: VarMap,
    hidden: Linear,
    output: Linear,
}

impl Net {
    /// Returns a net with random weights, for pictures of this many values.
    pub(crate) fn new(values: usize, classes: usize) -> Result<Self> {
        let weights = VarMap::new();
        let builder = VarBuilder::from_varmap(&weights, DType::F32, &Device::Cpu);
        let hidden = linear(values, HIDDEN, builder.pp("hidden"))?;
        let output = linear(HIDDEN, classes, builder.pp("output"))?;
        Ok(Self { weights, hidden, output })
    }

    /// Returns the answers to `f32[n, values]`: `f32[n, classes]`.
    pub(crate) fn forward(&self, images: &Tensor) -> Result<Tensor> {
        self.output.forward(&self.hidden.forward(images)?.relu()?)
    }

    /// Returns the gradients of `loss`, of all weights in the order of their names.
    pub(crate) fn gradients(&self, loss: &Tensor) -> Result<Vec<f32>> {
        let gradients = loss.backward()?;
        let mut numbers = Vec::new();
        for weight in self.vars() {
            let gradient = gradients.get(&weight).cloned().map_or_else(|| weight.zeros_like(), Ok)?;
            numbers.extend(gradient.flatten_all()?.to_vec1::<f32>()?);
        }
        Ok(numbers)
    }

    /// Goes down the gradients.
    pub(crate) fn step(&self, gradients: &[f32], rate: f64) -> Result<()> {
        self.each(gradients, |weight, gradient| weight.set(&(weight.as_tensor() - (gradient * rate)?)?))
    }

    /// Returns all weights, in the order of their names.
    pub(crate) fn weights(&self) -> Result<Vec<f32>> {
        let mut numbers = Vec::new();
        for weight in self.vars() {
            numbers.extend(weight.flatten_all()?.to_vec1::<f32>()?);
        }
        Ok(numbers)
    }

    /// Replaces all weights.
    pub(crate) fn replace_weights(&self, numbers: &[f32]) -> Result<()> {
        self.each(numbers, |weight, numbers| weight.set(numbers))
    }

    /// Writes the weights to a file.
    pub(crate) fn save(&self, path: &std::path::Path) -> Result<()> {
        self.weights.save(path)
    }

    /// Reads the weights from a file.
    pub(crate) fn load(&mut self, path: &std::path::Path) -> Result<()> {
        self.weights.load(path)
    }

    /// Calls `change` with each weight and its part of `numbers`.
    fn each(&self, numbers: &[f32], change: impl Fn(&Var, &Tensor) -> Result<()>) -> Result<()> {
        let mut rest = numbers;
        for weight in self.vars() {
            let (part, more) = rest.split_at(weight.elem_count());
            change(&weight, &Tensor::from_slice(part, weight.shape(), &Device::Cpu)?)?;
            rest = more;
        }
        Ok(())
    }

    fn vars(&self) -> Vec<Var> {
        let weights = self.weights.data().lock().expect("no thread has panicked");
        let mut named: Vec<_> = weights.iter().collect();
        named.sort_by_key(|(name, _)| name.as_str());
        named.into_iter().map(|(_, weight)| weight.clone()).collect()
    }
}
