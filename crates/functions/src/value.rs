//! The values that a function takes and returns: arrays, in memory that the worker lends.

use spdl_types::{DType, SampleShape};

use crate::{FunctionProblem, ValueElement, memory::ValueMemory};

/// The name, the type and the shape of a value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ValueType {
    /// The name of the field or the column.
    pub name: String,
    /// The type of the elements.
    pub dtype: DType,
    /// The shape.
    pub shape: SampleShape,
}

impl ValueType {
    /// Returns the most bytes of a value.
    #[must_use]
    pub fn max_bytes(&self) -> usize {
        usize::try_from(self.shape.max_bytes(self.dtype)).expect("a checked job has small samples")
    }

    /// Returns the size of a row, of one byte of bytes, or of an array of a fixed shape.
    fn unit_bytes(&self) -> usize {
        match &self.shape {
            SampleShape::Fixed(_) => self.max_bytes(),
            SampleShape::Rows { row, .. } => row.iter().fold(self.dtype.bytes(), |bytes, side| bytes * *side as usize),
            SampleShape::Bytes { .. } => 1,
        }
    }

    /// Describes a value of this many bytes: `f32 [3, 4]`.
    fn described(&self, bytes: usize) -> String {
        format!("{} {:?}", self.dtype.name(), self.shape_of(bytes))
    }

    /// Returns the shape of a value of this many bytes.
    fn shape_of(&self, bytes: usize) -> Vec<u32> {
        let units = u32::try_from(bytes / self.unit_bytes()).expect("samples are small");
        match &self.shape {
            SampleShape::Fixed(shape) => shape.clone(),
            SampleShape::Rows { row, .. } => [&[units], row.as_slice()].concat(),
            SampleShape::Bytes { .. } => vec![units],
        }
    }

    fn check<T: ValueElement>(&self) -> Result<(), FunctionProblem> {
        if T::DTYPES.contains(&self.dtype) {
            return Ok(());
        }
        let (dtype, name) = (self.dtype.name(), &self.name);
        Err(FunctionProblem::new(format!("`{name}` has elements of type {dtype}, not {}", std::any::type_name::<T>())))
    }
}

/// The values that a function takes.
#[derive(Debug)]
pub struct Taken<'a> {
    pub(crate) types: &'a [ValueType],
    pub(crate) memory: &'a [ValueMemory],
}

impl<'a> Taken<'a> {
    /// Returns the value of a field or a column.
    ///
    /// # Errors
    /// If the job gives the function no value of this name.
    pub fn value(&self, name: &str) -> Result<TakenValue<'a>, FunctionProblem> {
        let value = self.values().find(|value| value.declared.name == name);
        value.ok_or_else(|| FunctionProblem::new(format!("takes `{name}`, which its job does not give it")))
    }

    /// Returns all values, in the order of [`FunctionSetup::takes`](crate::FunctionSetup::takes).
    pub fn values(&self) -> impl Iterator<Item = TakenValue<'a>> + use<'a> {
        let values = self.types.iter().zip(self.memory);
        values.map(|(declared, memory)| TakenValue { declared, bytes: memory.used() })
    }
}

/// A value that a function takes: an array, or bytes.
#[derive(Clone, Copy, Debug)]
pub struct TakenValue<'a> {
    declared: &'a ValueType,
    bytes: &'a [u8],
}

impl<'a> TakenValue<'a> {
    /// Returns the name of the field or the column.
    #[must_use]
    pub fn name(&self) -> &'a str {
        &self.declared.name
    }

    /// Returns the shape: of an array with the number of rows of this sample, of bytes their number. A scalar has none.
    #[must_use]
    pub fn shape(&self) -> Vec<u32> {
        self.declared.shape_of(self.bytes.len())
    }

    /// Returns the elements in row-major order, little-endian.
    #[must_use]
    pub const fn bytes(&self) -> &'a [u8] {
        self.bytes
    }

    /// Returns the elements in row-major order.
    ///
    /// # Errors
    /// If the elements are of another type.
    pub fn elements<T: ValueElement>(&self) -> Result<&'a [T], FunctionProblem> {
        self.declared.check::<T>()?;
        Ok(bytemuck::cast_slice(self.bytes))
    }

    /// Returns the only element of a scalar.
    ///
    /// # Errors
    /// If the element is of another type, or the value is an array.
    pub fn number<T: ValueElement>(&self) -> Result<T, FunctionProblem> {
        match self.elements::<T>()? {
            [number] => Ok(*number),
            _ => {
                let found = self.declared.described(self.bytes.len());
                Err(FunctionProblem::new(format!("takes `{}` as a number, and it is {found}", self.declared.name)))
            }
        }
    }
}

/// The values that a function returns.
#[derive(Debug)]
pub struct Returned<'a> {
    pub(crate) types: &'a [ValueType],
    pub(crate) memory: &'a mut [ValueMemory],
}

impl Returned<'_> {
    /// Sets a value: all elements of an array in row-major order, or bytes. A second call replaces the first value.
    ///
    /// # Errors
    /// If the job declares no value of this name, or another type or shape.
    pub fn put<T: ValueElement>(&mut self, name: &str, elements: &[T]) -> Result<(), FunctionProblem> {
        self.room(name, elements.len())?.copy_from_slice(elements);
        Ok(())
    }

    /// Returns a place to write a value of `elements` elements, all of them zero. It saves the copy of
    /// [`put`](Self::put).
    ///
    /// # Errors
    /// If the job declares no value of this name, or another type or shape.
    pub fn place<T: ValueElement>(&mut self, name: &str, elements: usize) -> Result<&mut [T], FunctionProblem> {
        let place = self.room(name, elements)?;
        place.fill(T::zeroed());
        Ok(place)
    }

    /// Returns a place to write a value of `elements` elements, with arbitrary content.
    fn room<T: ValueElement>(&mut self, name: &str, elements: usize) -> Result<&mut [T], FunctionProblem> {
        let number = self.types.iter().position(|declared| declared.name == name);
        let number =
            number.ok_or_else(|| FunctionProblem::new(format!("returned `{name}`, which its job does not declare")))?;
        let declared = &self.types[number];
        declared.check::<T>()?;
        let bytes = elements.saturating_mul(size_of::<T>());
        let fits = match &declared.shape {
            SampleShape::Fixed(_) => bytes == declared.max_bytes(),
            _ => bytes <= declared.max_bytes() && bytes.is_multiple_of(declared.unit_bytes()),
        };
        if !fits {
            let most = declared.described(declared.max_bytes());
            let least = if matches!(declared.shape, SampleShape::Fixed(_)) { "" } else { "at most " };
            let problem = format!("returned {elements} elements of `{name}`, and its job declares {least}{most}");
            return Err(FunctionProblem::new(problem));
        }
        Ok(bytemuck::cast_slice_mut(self.memory[number].use_bytes(bytes)))
    }
}
