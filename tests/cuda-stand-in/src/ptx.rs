//! Parses and interprets PTX: the subset that the tested kernels use. Numbers are 64 bits wide, and an instruction's
//! type determines how many of them it uses.

use std::collections::HashMap;

/// A kernel.
pub(crate) struct StandInKernel {
    pub(crate) name: String,
    /// The bytes of each parameter.
    pub(crate) parameters: Vec<usize>,
    registers: usize,
    code: Vec<Instruction>,
}

/// The numbers of blocks and threads.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Grid {
    pub(crate) blocks: [u32; 2],
    pub(crate) threads: u32,
}

struct Instruction {
    /// Executes only if this register is not 0, or for `false`, only if it is 0.
    guard: Option<(usize, bool)>,
    /// The instruction's name as written, without its type.
    name: String,
    kind: TypeSuffix,
    operands: Vec<Operand>,
    text: String,
}

/// The type at the end of an instruction's name.
#[derive(Clone, Copy)]
struct TypeSuffix {
    bytes: usize,
    is_float: bool,
}

#[derive(Clone, Copy)]
enum Operand {
    Register(usize),
    Number(u64),
    ThreadX,
    BlockX,
    BlockY,
    BlocksX,
    BlocksY,
    ThreadsX,
    Parameter(usize),
    At(usize, u64),
    Label(usize),
}

/// The most instructions of one thread: a kernel that does not end is an error.
const MAX_STEPS: u64 = 10_000_000;

/// Parses the kernels of a module.
pub(crate) fn parse(text: &str) -> Result<Vec<StandInKernel>, String> {
    let plain: Vec<&str> = text.lines().map(|line| line.split("//").next().unwrap_or_default().trim()).collect();
    for directive in [".version", ".target", ".address_size 64"] {
        if !plain.iter().any(|line| line.starts_with(directive)) {
            return Err(format!("the module has no {directive}"));
        }
    }
    let plain = plain.join("\n");
    plain.split(".entry").skip(1).map(kernel).collect()
}

fn kernel(text: &str) -> Result<StandInKernel, String> {
    let (head, rest) = text.split_once('{').ok_or("a kernel has no body")?;
    let (body, _) = rest.split_once('}').ok_or("a body has no end")?;
    let (name, parameters) = head.split_once('(').ok_or("a kernel has no parameters")?;
    let mut reader = PtxReader::default();
    let mut sizes = Vec::new();
    for (at, parameter) in parameters.trim().trim_end_matches(')').split(',').enumerate() {
        let words: Vec<_> = parameter.split_whitespace().collect();
        let [".param", kind, name] = words[..] else { return Err(format!("parameter `{parameter}`")) };
        sizes.push(kind_of(kind.trim_start_matches('.')).ok_or_else(|| format!("parameter `{parameter}`"))?.bytes);
        reader.parameters.insert(name.into(), at);
    }
    let mut lines = Vec::new();
    for statement in body.split(';').map(str::trim).filter(|statement| !statement.is_empty()) {
        let mut statement = statement;
        while let Some((label, rest)) =
            statement.split_once(':').filter(|(label, _)| label.chars().all(char::is_alphanumeric))
        {
            reader.labels.insert(label.into(), lines.len());
            statement = rest.trim();
        }
        match statement.strip_prefix(".reg") {
            Some(names) => reader.declare(names),
            None => lines.push(statement.to_owned()),
        }
    }
    let code = lines.iter().map(|line| reader.instruction(line)).collect::<Result<_, _>>()?;
    Ok(StandInKernel { name: name.trim().into(), parameters: sizes, registers: reader.registers.len(), code })
}

fn kind_of(text: &str) -> Option<TypeSuffix> {
    let (letter, bits) = text.split_at(1.min(text.len()));
    match (letter, bits) {
        ("p", "red") => Some(TypeSuffix { bytes: 8, is_float: false }),
        ("u" | "s" | "b" | "f", "8" | "16" | "32" | "64") => {
            Some(TypeSuffix { bytes: bits.parse::<usize>().ok()? / 8, is_float: letter == "f" })
        }
        _ => None,
    }
}

#[derive(Default)]
struct PtxReader {
    parameters: HashMap<String, usize>,
    registers: HashMap<String, usize>,
    labels: HashMap<String, usize>,
}

impl PtxReader {
    fn declare(&mut self, names: &str) {
        for name in names.split([',', ' ']).map(str::trim).filter(|name| name.starts_with('%')) {
            let next = self.registers.len();
            self.registers.insert(name.into(), next);
        }
    }

    fn instruction(&self, line: &str) -> Result<Instruction, String> {
        let wrong = || format!("cannot read `{line}`");
        let (guard, rest) = match line.strip_prefix('@') {
            None => (None, line),
            Some(guarded) => {
                let (register, rest) = guarded.split_once(char::is_whitespace).ok_or_else(wrong)?;
                let (register, wanted) = match register.strip_prefix('!') {
                    Some(register) => (register, false),
                    None => (register, true),
                };
                (Some((*self.registers.get(register).ok_or_else(wrong)?, wanted)), rest.trim())
            }
        };
        let (name, operands) = rest.split_once(char::is_whitespace).unwrap_or((rest, ""));
        let (short, kind) = match name.rsplit_once('.').map(|(short, kind)| (short, kind_of(kind))) {
            Some((short, Some(kind))) => (short, kind),
            _ => (name, TypeSuffix { bytes: 8, is_float: false }),
        };
        let operands = operands.split(',').map(str::trim).filter(|operand| !operand.is_empty());
        let operands = operands.map(|operand| self.operand(operand).ok_or_else(wrong)).collect::<Result<_, _>>()?;
        Ok(Instruction { guard, name: short.into(), kind, operands, text: line.into() })
    }

    fn operand(&self, text: &str) -> Option<Operand> {
        if let Some(inside) = text.strip_prefix('[').and_then(|text| text.strip_suffix(']')) {
            let (base, offset) = inside.split_once('+').unwrap_or((inside, "0"));
            return match self.parameters.get(base) {
                Some(at) => Some(Operand::Parameter(*at)),
                None => Some(Operand::At(*self.registers.get(base)?, offset.parse().ok()?)),
            };
        }
        Some(match text {
            "%tid.x" => Operand::ThreadX,
            "%ctaid.x" => Operand::BlockX,
            "%ctaid.y" => Operand::BlockY,
            "%nctaid.x" => Operand::BlocksX,
            "%nctaid.y" => Operand::BlocksY,
            "%ntid.x" => Operand::ThreadsX,
            _ => match (self.registers.get(text), self.labels.get(text)) {
                (Some(register), _) => Operand::Register(*register),
                (None, Some(label)) => Operand::Label(*label),
                (None, None) => Operand::Number(text.parse().ok()?),
            },
        })
    }
}

/// Checks whether so many bytes at an address may be used.
type Check<'a> = &'a dyn Fn(usize, usize, &str) -> bool;

impl StandInKernel {
    /// Runs all threads, one after the other.
    pub(crate) fn run(&self, arguments: &[u64], grid: Grid, check: Check<'_>) -> Result<(), String> {
        for y in 0..grid.blocks[1] {
            for x in 0..grid.blocks[0] {
                for thread in 0..grid.threads {
                    let registers = vec![0; self.registers];
                    Thread { kernel: self, arguments, grid, place: [x, y, thread], registers, check }.run()?;
                }
            }
        }
        Ok(())
    }
}

struct Thread<'a> {
    kernel: &'a StandInKernel,
    arguments: &'a [u64],
    grid: Grid,
    place: [u32; 3],
    registers: Vec<u64>,
    check: Check<'a>,
}

impl Thread<'_> {
    fn run(&mut self) -> Result<(), String> {
        let mut at = 0;
        for _ in 0..MAX_STEPS {
            let kernel = self.kernel;
            let instruction = kernel.code.get(at).ok_or("a kernel has no `ret` at its end")?;
            at += 1;
            if let Some((register, wanted)) = instruction.guard
                && (self.registers[register] != 0) != wanted
            {
                continue;
            }
            match (instruction.name.as_str(), &instruction.operands[..]) {
                ("ret", []) => return Ok(()),
                ("trap", []) => return Err(format!("kernel `{}` traps", kernel.name)),
                ("bra", [Operand::Label(label)]) => at = *label,
                (_, operands) => self.step(instruction, operands)?,
            }
        }
        Err(format!("kernel `{}` does not end", self.kernel.name))
    }

    fn step(&mut self, instruction: &Instruction, operands: &[Operand]) -> Result<(), String> {
        let wrong = || format!("kernel `{}`: `{}` is not known here", self.kernel.name, instruction.text);
        let TypeSuffix { bytes, is_float } = instruction.kind;
        if is_float {
            return Err(wrong());
        }
        if let ("st.global", [Operand::At(register, offset), from]) = (instruction.name.as_str(), operands) {
            let (address, value) = (self.registers[*register] + offset, self.value(*from));
            return self.store(address, value, bytes);
        }
        let (Some(Operand::Register(to)), Some(sources)) = (operands.first(), operands.get(1..)) else {
            return Err(wrong());
        };
        let low = |value: u64| value & (u64::MAX >> (64 - 8 * bytes));
        let value = |at: usize| sources.get(at).map(|operand| low(self.value(*operand))).ok_or_else(wrong);
        let result = match instruction.name.as_str() {
            "ld.param" | "mov" | "cvta.to.global" => value(0)?,
            "cvt.u64" => value(0)?,
            "add" => value(0)?.wrapping_add(value(1)?),
            "sub" => value(0)?.wrapping_sub(value(1)?),
            "xor" => value(0)? ^ value(1)?,
            "mul.lo" => value(0)?.wrapping_mul(value(1)?),
            "mad.lo" => value(0)?.wrapping_mul(value(1)?).wrapping_add(value(2)?),
            "mul.wide" => {
                self.registers[*to] = value(0)? * value(1)?;
                return Ok(());
            }
            "rem" => value(0)?.checked_rem(value(1)?).ok_or("a division by zero")?,
            "setp.eq" => u64::from(value(0)? == value(1)?),
            "setp.ne" => u64::from(value(0)? != value(1)?),
            "setp.ge" => u64::from(value(0)? >= value(1)?),
            "setp.lt" => u64::from(value(0)? < value(1)?),
            "ld.global.nc" | "ld.global" => match sources {
                [Operand::At(register, offset)] => self.load(self.registers[*register] + offset, bytes)?,
                _ => return Err(wrong()),
            },
            "atom.global.add" => match sources {
                [Operand::At(register, offset), more] => {
                    let address = self.registers[*register] + offset;
                    let before = self.load(address, bytes)?;
                    let more = self.value(*more);
                    self.store(address, before.wrapping_add(more), bytes)?;
                    before
                }
                _ => return Err(wrong()),
            },
            _ => return Err(wrong()),
        };
        self.registers[*to] = low(result);
        Ok(())
    }

    fn value(&self, operand: Operand) -> u64 {
        let [x, y, thread] = self.place;
        match operand {
            Operand::Register(register) => self.registers[register],
            Operand::Number(number) => number,
            Operand::ThreadX => thread.into(),
            Operand::BlockX => x.into(),
            Operand::BlockY => y.into(),
            Operand::BlocksX => self.grid.blocks[0].into(),
            Operand::BlocksY => self.grid.blocks[1].into(),
            Operand::ThreadsX => self.grid.threads.into(),
            Operand::Parameter(at) => self.arguments[at],
            Operand::At(..) | Operand::Label(_) => 0,
        }
    }

    fn checked(&self, address: u64, bytes: usize, what: &str) -> Result<usize, String> {
        let address = address as usize;
        let name = &self.kernel.name;
        if !address.is_multiple_of(bytes) {
            return Err(format!("kernel `{name}`: {what} of {bytes} bytes at {address:#x}, which is not aligned"));
        }
        let is_right = (self.check)(address, bytes, what);
        is_right.then_some(address).ok_or_else(|| format!("kernel `{name}` reaches outside of its memory"))
    }

    fn load(&self, address: u64, bytes: usize) -> Result<u64, String> {
        let address = self.checked(address, bytes, "load")?;
        let mut value = [0; 8];
        // SAFETY: live device memory, as checked, and a number of the same length.
        unsafe { std::ptr::copy_nonoverlapping(address as *const u8, value.as_mut_ptr(), bytes) };
        Ok(u64::from_le_bytes(value))
    }

    fn store(&self, address: u64, value: u64, bytes: usize) -> Result<(), String> {
        let address = self.checked(address, bytes, "store")?;
        // SAFETY: live device memory, as checked, and a number of the same length.
        unsafe { std::ptr::copy_nonoverlapping(value.to_le_bytes().as_ptr(), address as *mut u8, bytes) };
        Ok(())
    }
}
