//! Pickles, read and never run.
//!
//! A pickle is a program for a small machine with a stack, which can call any function of Python.
//! This machine knows numbers, texts, lists, tuples and dictionaries, and of functions the three
//! that `torch.save` calls for a dictionary of tensors; it calls none, but notes what they would
//! have made. Whatever else a pickle names is refused by its name. The opcodes:
//! <https://github.com/python/cpython/blob/main/Lib/pickletools.py>.

use std::collections::HashMap;

/// Where a value stands among all that a pickle made.
pub type Place = usize;

/// What a pickle made.
#[derive(Clone, Debug, PartialEq)]
pub enum Value {
    None,
    Flag(bool),
    Whole(i64),
    Real(f64),
    Text(String),
    List(Vec<Place>),
    Tuple(Vec<Place>),
    /// Keys and values, in their order.
    Map(Vec<(Place, Place)>),
    /// Something of a Python module, by its name.
    Global(String),
    /// What a persistent id names: of torch's, a file of the zip.
    Persistent(Place),
    /// What torch's function for tensors was given.
    Tensor(Place),
}

/// Longest pickle that is read, in bytes: one of GPT-2 XL with its optimizer takes half a megabyte,
/// and a byte can stand for a value of some hundred.
const LONGEST: usize = 1 << 22;

/// The functions and types that may be named.
const KNOWN: [&str; 3] = ["collections.OrderedDict", REBUILD_TENSOR, REBUILD_PARAMETER];
const REBUILD_TENSOR: &str = "torch._utils._rebuild_tensor_v2";
const REBUILD_PARAMETER: &str = "torch._utils._rebuild_parameter";

/// All values of a pickle. They refer to one another by place, so that a value may contain itself
/// and nothing is copied.
#[derive(Debug)]
pub struct Pickle {
    values: Vec<Value>,
    root: Place,
}

impl Pickle {
    /// Reads a pickle.
    ///
    /// # Errors
    /// When it is cut short, malformed or longer than any, or names what is not known here.
    pub fn read(bytes: &[u8]) -> Result<Self, String> {
        if bytes.len() > LONGEST {
            return Err(format!("its pickle has {} bytes, which no model needs", bytes.len()));
        }
        Machine { bytes, at: 0, values: Vec::new(), stack: Vec::new(), marks: Vec::new(), memo: HashMap::new() }.run()
    }

    /// The value that it is.
    pub fn root(&self) -> &Value {
        self.value(self.root)
    }

    pub fn value(&self, place: Place) -> &Value {
        &self.values[place]
    }

    /// The value of a key, in a dictionary.
    pub fn get<'a>(&'a self, map: &'a Value, key: &str) -> Option<&'a Value> {
        let Value::Map(pairs) = map else { return None };
        let found = pairs.iter().rev().find(|(name, _)| matches!(self.value(*name), Value::Text(name) if name == key));
        found.map(|(_, value)| self.value(*value))
    }

    /// The texts that are keys of a dictionary, with their values.
    pub fn named<'a>(&'a self, map: &'a Value) -> impl Iterator<Item = (&'a str, &'a Value)> {
        let pairs = if let Value::Map(pairs) = map { pairs.as_slice() } else { &[] };
        pairs.iter().filter_map(|(name, value)| match self.value(*name) {
            Value::Text(name) => Some((name.as_str(), self.value(*value))),
            _ => None,
        })
    }

    /// What is in a tuple.
    pub fn tuple<'a>(&'a self, value: &'a Value) -> Option<Vec<&'a Value>> {
        let Value::Tuple(places) = value else { return None };
        Some(places.iter().map(|place| self.value(*place)).collect())
    }
}

/// The machine, in the middle of its work.
struct Machine<'a> {
    bytes: &'a [u8],
    at: usize,
    values: Vec<Value>,
    stack: Vec<Place>,
    /// How high the stack was where a list of things began.
    marks: Vec<usize>,
    memo: HashMap<u64, Place>,
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
            b'q' | b'r' | 0x94 | b'h' | b'j' => self.remember(opcode)?,
            b'c' | 0x93 => self.global(opcode)?,
            b'Q' => {
                let id = self.pop()?;
                self.push(Value::Persistent(id));
            }
            b'R' => self.reduce()?,
            b'b' => drop(self.pop()?), // BUILD: what OrderedDict and parameters carry beside
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
            .ok_or_else(|| format!("its pickle announces {count} bytes where {} follow", rest.len()))?;
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

    fn pop(&mut self) -> Result<Place, String> {
        let floor = self.marks.last().copied().unwrap_or(0);
        let place = if self.stack.len() > floor { self.stack.pop() } else { None };
        place.ok_or_else(|| "its pickle takes from an empty stack".to_owned())
    }

    /// What was pushed since the last mark.
    fn since_mark(&mut self) -> Result<Vec<Place>, String> {
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
        let places = match opcode {
            b't' => self.since_mark()?,
            _ => {
                let mut places = (0x85..=opcode).map(|_| self.pop()).collect::<Result<Vec<_>, String>>()?;
                places.reverse();
                places
            }
        };
        self.push(Value::Tuple(places));
        Ok(())
    }

    /// APPEND and APPENDS.
    fn append(&mut self, opcode: u8) -> Result<(), String> {
        let items = if opcode == b'a' { vec![self.pop()?] } else { self.since_mark()? };
        match self.top()? {
            Value::List(list) => list.extend(items),
            _ => return Err("its pickle appends to what is no list".to_owned()),
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
            _ => return Err("its pickle sets keys of what is no dictionary".to_owned()),
        }
        Ok(())
    }

    fn top(&mut self) -> Result<&mut Value, String> {
        let place = *self.stack.last().ok_or("its pickle takes from an empty stack")?;
        Ok(&mut self.values[place])
    }

    /// BINPUT, LONG_BINPUT, MEMOIZE, BINGET and LONG_BINGET.
    fn remember(&mut self, opcode: u8) -> Result<(), String> {
        let index = match opcode {
            b'q' | b'h' => self.byte()?.into(),
            0x94 => self.memo.len() as u64,
            _ => self.length()? as u64,
        };
        if matches!(opcode, b'h' | b'j') {
            let place = self.memo.get(&index).ok_or("its pickle refers to what it never noted")?;
            self.stack.push(*place);
        } else {
            let place = *self.stack.last().ok_or("its pickle takes from an empty stack")?;
            self.memo.insert(index, place);
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
                _ => return Err("its pickle names something by what is no text".to_owned()),
            }
        };
        let whole = format!("{module}.{name}");
        let is_storage = module == "torch" && name.ends_with("Storage") && name.chars().all(char::is_alphanumeric);
        if !is_storage && !KNOWN.contains(&whole.as_str()) {
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

    /// REDUCE: what a known function would have made of its arguments.
    fn reduce(&mut self) -> Result<(), String> {
        let (arguments, function) = (self.pop()?, self.pop()?);
        let Value::Global(function) = &self.values[function] else {
            return Err("its pickle calls what is no function".to_owned());
        };
        let first = |values: &[Value]| match &values[arguments] {
            Value::Tuple(places) => places.first().copied(),
            _ => None,
        };
        match function.as_str() {
            REBUILD_TENSOR => self.push(Value::Tensor(arguments)),
            REBUILD_PARAMETER => {
                let tensor = first(&self.values).ok_or("its pickle makes a parameter of nothing")?;
                self.stack.push(tensor);
            }
            "collections.OrderedDict" if first(&self.values).is_none() => self.push(Value::Map(Vec::new())),
            other => return Err(format!("its pickle calls {other} with what no dictionary of tensors needs")),
        }
        Ok(())
    }
}
