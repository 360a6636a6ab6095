//! Reads pickles without executing them.
//!
//! A pickle is a program for a small stack machine that can call any Python function. This machine
//! supports numbers, strings, lists, tuples and dictionaries, and three functions that `torch.save`
//! uses for a dictionary of tensors; it calls none of them, but records what they would have
//! returned. Any other name in a pickle is rejected. The opcodes:
//! <https://github.com/python/cpython/blob/main/Lib/pickletools.py>.

use std::collections::HashMap;

/// Index of a value among all values of a pickle.
pub type ValueId = usize;

/// A value made by a pickle.
#[derive(Clone, Debug, PartialEq)]
pub enum Value {
    None,
    Flag(bool),
    Whole(i64),
    Real(f64),
    Text(String),
    List(Vec<ValueId>),
    Tuple(Vec<ValueId>),
    /// Keys and values, in order.
    Map(Vec<(ValueId, ValueId)>),
    /// A name in a Python module.
    Global(String),
    /// A persistent id: in torch's files, it refers to a file of the zip.
    Persistent(ValueId),
    /// The arguments of torch's function that rebuilds a tensor.
    Tensor(ValueId),
}

/// Maximum bytes of a pickle: one of GPT-2 XL with its optimizer takes half a megabyte, and one
/// byte can create a value of some hundred bytes.
const LONGEST: usize = 1 << 22;

/// Maximum bytes of a storage class's name: torch's longest has 20. A pickle can refer to a text of
/// its own any number of times, and each name is a copy.
const LONGEST_NAME: usize = 32;

/// Maximum elements of a tuple that is read: the arguments of torch's function are seven, and no
/// weight has as many dimensions. Any number of tensors can refer to one tuple.
const LONGEST_TUPLE: usize = 16;

/// The functions and types that are allowed.
const ALLOWED_GLOBALS: [&str; 3] = ["collections.OrderedDict", REBUILD_TENSOR, REBUILD_PARAMETER];
const REBUILD_TENSOR: &str = "torch._utils._rebuild_tensor_v2";
const REBUILD_PARAMETER: &str = "torch._utils._rebuild_parameter";

/// All values of a pickle. They refer to each other by index, so that a value may contain itself
/// and nothing is copied.
#[derive(Debug)]
pub struct Pickle {
    values: Vec<Value>,
    root: ValueId,
}

impl Pickle {
    /// Reads a pickle.
    ///
    /// # Errors
    /// When it is cut short, malformed or too long, or has a name that is not allowed.
    pub fn read(bytes: &[u8]) -> Result<Self, String> {
        if bytes.len() > LONGEST {
            return Err(format!("its pickle has {} bytes, more than any model needs", bytes.len()));
        }
        Machine { bytes, at: 0, values: Vec::new(), stack: Vec::new(), marks: Vec::new(), memo: HashMap::new() }.run()
    }

    /// The value of the whole pickle.
    pub fn root(&self) -> &Value {
        self.value(self.root)
    }

    pub fn value(&self, id: ValueId) -> &Value {
        &self.values[id]
    }

    /// The value of a key in a dictionary.
    pub fn get<'a>(&'a self, map: &'a Value, key: &str) -> Option<&'a Value> {
        let Value::Map(pairs) = map else { return None };
        let found = pairs.iter().rev().find(|(name, _)| matches!(self.value(*name), Value::Text(name) if name == key));
        found.map(|(_, value)| self.value(*value))
    }

    /// The string keys of a dictionary, with their values.
    pub fn named<'a>(&'a self, map: &'a Value) -> impl Iterator<Item = (&'a str, &'a Value)> {
        let pairs = if let Value::Map(pairs) = map { pairs.as_slice() } else { &[] };
        pairs.iter().filter_map(|(name, value)| match self.value(*name) {
            Value::Text(name) => Some((name.as_str(), self.value(*value))),
            _ => None,
        })
    }

    /// The elements of a tuple; `None` if it is longer than any that torch writes for a weight.
    pub fn tuple<'a>(&'a self, value: &'a Value) -> Option<Vec<&'a Value>> {
        let Value::Tuple(ids) = value else { return None };
        (ids.len() <= LONGEST_TUPLE).then(|| ids.iter().map(|id| self.value(*id)).collect())
    }
}

/// The state of the machine.
struct Machine<'a> {
    bytes: &'a [u8],
    at: usize,
    values: Vec<Value>,
    stack: Vec<ValueId>,
    /// Heights of the stack at the open marks.
    marks: Vec<usize>,
    memo: HashMap<u64, ValueId>,
}

impl Machine<'_> {
    fn run(mut self) -> Result<Pickle, String> {
        loop {
            let opcode = self.byte()?;
            if opcode == b'.' {
                let root = self.pop()?;
                return Ok(Pickle { values: self.values, root });
            }
            self.step(opcode)?;
        }
    }

    fn step(&mut self, opcode: u8) -> Result<(), String> {
        match opcode {
            0x80 => drop(self.byte()?),  // PROTO
            0x95 => drop(self.take(8)?), // FRAME
            b'(' => self.marks.push(self.stack.len()),
            b'0' => drop(self.pop()?),        // POP
            b'1' => drop(self.since_mark()?), // POP_MARK
            b'N' => self.push(Value::None),
            0x88 => self.push(Value::Flag(true)),
            0x89 => self.push(Value::Flag(false)),
            b'K' | b'M' | b'J' | 0x8a => {
                let number = self.whole(opcode)?;
                self.push(Value::Whole(number));
            }
            b'G' => {
                let number = f64::from_be_bytes(self.array()?);
                self.push(Value::Real(number));
            }
            0x8c | b'X' | 0x8d => {
                let text = self.text(opcode)?;
                self.push(Value::Text(text));
            }
            b'}' => self.push(Value::Map(Vec::new())),
            b']' => self.push(Value::List(Vec::new())),
            b')' => self.push(Value::Tuple(Vec::new())),
            b't' | 0x85 | 0x86 | 0x87 => self.tuple(opcode)?,
            b'a' | b'e' => self.append(opcode)?,
            b's' | b'u' => self.set_items(opcode)?,
            b'q' | b'r' | 0x94 | b'h' | b'j' => self.memo_op(opcode)?,
            b'c' | 0x93 => self.global(opcode)?,
            b'Q' => {
                let id = self.pop()?;
                self.push(Value::Persistent(id));
            }
            b'R' => self.reduce()?,
            b'b' => drop(self.pop()?), // BUILD: extra state of OrderedDict and parameters
            other => {
                return Err(format!("its pickle has the opcode 0x{other:02x}, which no dictionary of tensors needs"));
            }
        }
        Ok(())
    }

    fn take(&mut self, count: usize) -> Result<&[u8], String> {
        let rest = &self.bytes[self.at..];
        let taken = rest
            .get(..count)
            .ok_or_else(|| format!("its pickle announces {count} bytes, but only {} follow", rest.len()))?;
        self.at += count;
        Ok(taken)
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], String> {
        Ok(self.take(N)?.as_chunks::<N>().0[0])
    }

    fn byte(&mut self) -> Result<u8, String> {
        Ok(self.array::<1>()?[0])
    }

    fn length(&mut self) -> Result<usize, String> {
        Ok(u32::from_le_bytes(self.array()?) as usize)
    }

    fn push(&mut self, value: Value) {
        self.stack.push(self.values.len());
        self.values.push(value);
    }

    fn pop(&mut self) -> Result<ValueId, String> {
        let floor = self.marks.last().copied().unwrap_or(0);
        let id = if self.stack.len() > floor { self.stack.pop() } else { None };
        id.ok_or_else(|| "its pickle pops from an empty stack".to_owned())
    }

    /// The values pushed since the last mark.
    fn since_mark(&mut self) -> Result<Vec<ValueId>, String> {
        let mark = self.marks.pop().filter(|mark| *mark <= self.stack.len());
        Ok(self.stack.split_off(mark.ok_or("its pickle ends a list that never began")?))
    }

    /// BININT1, BININT2, BININT and LONG1 of up to eight bytes.
    fn whole(&mut self, opcode: u8) -> Result<i64, String> {
        Ok(match opcode {
            b'K' => self.byte()?.into(),
            b'M' => u16::from_le_bytes(self.array()?).into(),
            b'J' => i32::from_le_bytes(self.array()?).into(),
            _ => {
                let length = self.byte()?.into();
                let bytes = self.take(length)?;
                if bytes.len() > 8 {
                    return Err(format!("its pickle has a number of {length} bytes"));
                }
                let sign = if bytes.last().is_some_and(|last| *last > 127) { 0xff } else { 0 };
                let mut all = [sign; 8];
                all[..bytes.len()].copy_from_slice(bytes);
                i64::from_le_bytes(all)
            }
        })
    }

    /// SHORT_BINUNICODE, BINUNICODE and BINUNICODE8.
    fn text(&mut self, opcode: u8) -> Result<String, String> {
        let length = match opcode {
            0x8c => self.byte()?.into(),
            b'X' => self.length()?,
            _ => usize::try_from(u64::from_le_bytes(self.array()?)).unwrap_or(usize::MAX),
        };
        let text = std::str::from_utf8(self.take(length)?);
        text.map(str::to_owned).map_err(|_| "a text in its pickle is not UTF-8".to_owned())
    }

    fn tuple(&mut self, opcode: u8) -> Result<(), String> {
        let ids = match opcode {
            b't' => self.since_mark()?,
            _ => {
                let mut ids = (0x85..=opcode).map(|_| self.pop()).collect::<Result<Vec<_>, String>>()?;
                ids.reverse();
                ids
            }
        };
        self.push(Value::Tuple(ids));
        Ok(())
    }

    /// APPEND and APPENDS.
    fn append(&mut self, opcode: u8) -> Result<(), String> {
        let items = if opcode == b'a' { vec![self.pop()?] } else { self.since_mark()? };
        match self.top()? {
            Value::List(list) => list.extend(items),
            _ => return Err("its pickle appends to something that is not a list".to_owned()),
        }
        Ok(())
    }

    /// SETITEM and SETITEMS.
    fn set_items(&mut self, opcode: u8) -> Result<(), String> {
        let items = match opcode {
            b's' => {
                let value = self.pop()?;
                vec![self.pop()?, value]
            }
            _ => self.since_mark()?,
        };
        match self.top()? {
            Value::Map(map) => map.extend(items.as_chunks::<2>().0.iter().map(|[key, value]| (*key, *value))),
            _ => return Err("its pickle sets keys of something that is not a dictionary".to_owned()),
        }
        Ok(())
    }

    fn top(&mut self) -> Result<&mut Value, String> {
        let id = *self.stack.last().ok_or("its pickle pops from an empty stack")?;
        Ok(&mut self.values[id])
    }

    /// BINPUT, LONG_BINPUT, MEMOIZE, BINGET and LONG_BINGET.
    fn memo_op(&mut self, opcode: u8) -> Result<(), String> {
        let index = match opcode {
            b'q' | b'h' => self.byte()?.into(),
            0x94 => self.memo.len() as u64,
            _ => self.length()? as u64,
        };
        if matches!(opcode, b'h' | b'j') {
            let id = self.memo.get(&index).ok_or("its pickle refers to a memo that it never wrote")?;
            self.stack.push(*id);
        } else {
            let id = *self.stack.last().ok_or("its pickle pops from an empty stack")?;
            self.memo.insert(index, id);
        }
        Ok(())
    }

    /// GLOBAL and STACK_GLOBAL.
    fn global(&mut self, opcode: u8) -> Result<(), String> {
        let (module, name) = if opcode == b'c' {
            (self.line()?, self.line()?)
        } else {
            let (name, module) = (self.pop()?, self.pop()?);
            match (&self.values[module], &self.values[name]) {
                (Value::Text(module), Value::Text(name)) => (module.clone(), name.clone()),
                _ => return Err("its pickle names something by a value that is not text".to_owned()),
            }
        };
        let whole = format!("{module}.{name}");
        let is_storage = module == "torch"
            && name.len() <= LONGEST_NAME
            && name.ends_with("Storage")
            && name.chars().all(char::is_alphanumeric);
        if !is_storage && !ALLOWED_GLOBALS.contains(&whole.as_str()) {
            let shown: String = whole.chars().take(80).flat_map(char::escape_default).collect();
            return Err(format!(
                "its pickle asks for {shown}, which is refused: only tensors in dictionaries are read"
            ));
        }
        self.push(Value::Global(whole));
        Ok(())
    }

    fn line(&mut self) -> Result<String, String> {
        let rest = &self.bytes[self.at..];
        let length = rest.iter().position(|byte| *byte == b'\n').ok_or("its pickle ends in a name")?;
        let line = String::from_utf8_lossy(&rest[..length]).into_owned();
        self.at += length + 1;
        Ok(line)
    }

    /// REDUCE: records what an allowed function would have made of its arguments.
    fn reduce(&mut self) -> Result<(), String> {
        let (arguments, function) = (self.pop()?, self.pop()?);
        let Value::Global(function) = &self.values[function] else {
            return Err("its pickle calls something that is not a function".to_owned());
        };
        let first = |values: &[Value]| match &values[arguments] {
            Value::Tuple(ids) => ids.first().copied(),
            _ => None,
        };
        match function.as_str() {
            REBUILD_TENSOR => self.push(Value::Tensor(arguments)),
            REBUILD_PARAMETER => {
                let tensor = first(&self.values).ok_or("its pickle makes a parameter of nothing")?;
                self.stack.push(tensor);
            }
            "collections.OrderedDict" if first(&self.values).is_none() => self.push(Value::Map(Vec::new())),
            other => return Err(format!("its pickle calls {other} with unexpected arguments")),
        }
        Ok(())
    }
}
