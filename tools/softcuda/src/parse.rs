//! Parses PTX text.

mod instruction;
mod matrix;

use crate::{ptx::*, reconverge::reconvergence_points};
use std::collections::HashMap;

fn uncommented(text: &str) -> String {
    text.lines().map(|line| line.split("//").next().unwrap_or("")).collect::<Vec<_>>().join("\n")
}

/// Parses a declaration `.align N .type name[count]`: returns name, size in bytes, alignment.
fn variable(statement: &str) -> Option<(String, usize, usize)> {
    let mut align = 1;
    let mut size = 0;
    let mut words = statement.split('=').next()?.split_whitespace();
    while let Some(word) = words.next() {
        if word == ".align" {
            align = words.next()?.parse().ok()?;
        } else if let Some(ty) = word.strip_prefix('.').and_then(Ty::named) {
            size = ty.bytes();
        } else if !word.starts_with('.') {
            let (name, count) = match word.split_once('[') {
                Some((name, rest)) => (name, rest.trim_end_matches(']').parse().unwrap_or(0)),
                None => (word, 1),
            };
            return Some((name.to_string(), size * count, align.max(size)));
        }
    }
    None
}

pub fn parse(text: &str) -> Result<Module, String> {
    let text = uncommented(text);
    let mut rest = text.as_str();
    let mut module = Module { kernels: Vec::new(), globals: Vec::new() };
    let mut symbols: HashMap<String, u64> = HashMap::new();
    let mut shared = 0usize;
    let mut dynamic: Vec<(String, usize)> = Vec::new();
    loop {
        rest = rest.trim_start();
        if rest.is_empty() {
            return Ok(module);
        }
        if rest.starts_with(".version")
            || rest.starts_with(".target")
            || rest.starts_with(".address_size")
            || rest.starts_with(".file")
        {
            rest = rest.split_once('\n').map_or("", |(_, rest)| rest);
            continue;
        }
        let end = rest.find([';', '{', '(']).ok_or("text after the last statement")?;
        let head = &rest[..end];
        if head.contains(".entry") {
            let close = rest.find(')').ok_or("no ) after an entry")?;
            let open = rest[close..].find('{').ok_or("no body")? + close;
            let close_body = matching(rest, open)?;
            let has_params = rest[end..].starts_with('(');
            let params = if has_params { &rest[end + 1..close] } else { "" };
            let attributes = &rest[if has_params { close + 1 } else { end }..open];
            let name = head.split_whitespace().last().unwrap().to_string();
            let body = &rest[open + 1..close_body];
            module.kernels.push(kernel(name, params, attributes, body, &symbols, shared, &dynamic)?);
            rest = &rest[close_body + 1..];
        } else if head.contains(".func") {
            let open = rest.find('{').unwrap_or(usize::MAX);
            let semicolon = rest.find(';').unwrap_or(usize::MAX);
            if semicolon < open {
                rest = &rest[semicolon + 1..];
            } else {
                // Functions are already inlined, so they are skipped; a call would be an unknown
                // instruction.
                rest = &rest[matching(rest, open)? + 1..];
            }
        } else {
            // A variable, perhaps with initial values in braces.
            let end = rest.find(';').ok_or("no ; after a variable")?;
            let statement = &rest[..end];
            if let Some((name, size, align)) = variable(statement) {
                if statement.contains(".extern") && statement.contains(".shared") {
                    dynamic.push((name, align));
                } else if statement.contains(".shared") {
                    shared = shared.next_multiple_of(align);
                    symbols.insert(name, shared as u64);
                    shared += size;
                } else {
                    let mut bytes = vec![0u64; size.div_ceil(8).max(1)].into_boxed_slice();
                    if let Some((_, values)) = statement.split_once('=') {
                        let element = statement
                            .split_whitespace()
                            .filter_map(|w| w.strip_prefix('.').and_then(Ty::named))
                            .next()
                            .unwrap_or(Ty::U8)
                            .bytes();
                        let target = unsafe { std::slice::from_raw_parts_mut(bytes.as_mut_ptr() as *mut u8, size) };
                        for (i, value) in
                            values.trim().trim_start_matches('{').trim_end_matches('}').split(',').enumerate()
                        {
                            let value = number(value.trim()).ok_or_else(|| format!("{value} in a table"))?;
                            target[i * element..][..element].copy_from_slice(&value.to_le_bytes()[..element]);
                        }
                    }
                    symbols.insert(name, bytes.as_ptr() as u64);
                    module.globals.push(bytes);
                }
            }
            rest = &rest[end + 1..];
        }
    }
}

fn matching(text: &str, open: usize) -> Result<usize, String> {
    let mut depth = 0;
    for (i, c) in text[open..].char_indices() {
        match c {
            '{' => depth += 1,
            '}' => {
                depth -= 1;
                if depth == 0 {
                    return Ok(open + i);
                }
            }
            _ => {}
        }
    }
    Err("a body without its end".into())
}

fn number(text: &str) -> Option<u64> {
    if let Some(hex) = text.strip_prefix("0f") {
        return u64::from_str_radix(hex, 16).ok();
    }
    if let Some(hex) = text.strip_prefix("0d") {
        return u64::from_str_radix(hex, 16).ok();
    }
    if let Some(hex) = text.strip_prefix("0x") {
        return u64::from_str_radix(hex.trim_end_matches('U'), 16).ok();
    }
    if let Some(hex) = text.strip_prefix("-0x") {
        return u64::from_str_radix(hex, 16).ok().map(|v| (v as i64).wrapping_neg() as u64);
    }
    text.trim_end_matches('U').parse::<i64>().map(|v| v as u64).ok().or_else(|| text.parse().ok())
}

/// A scope in braces: names are looked up here first, then in the enclosing scope.
#[derive(Default)]
struct Scope {
    parent: Option<usize>,
    registers: HashMap<String, Reg>,
    labels: HashMap<String, usize>,
}

struct Names<'a> {
    /// All scopes; the first is the kernel's body.
    scopes: Vec<Scope>,
    /// Index of the current scope.
    scope: usize,
    counts: [u32; 3],
    symbols: HashMap<String, (Space, u64)>,
    tables: HashMap<String, Vec<&'a str>>,
}

fn statements(body: &str) -> Vec<&str> {
    body.split(';').map(str::trim).filter(|s| !s.is_empty()).collect()
}

fn kernel(
    name: String,
    params: &str,
    attributes: &str,
    body: &str,
    globals: &HashMap<String, u64>,
    module_shared: usize,
    dynamic: &[(String, usize)],
) -> Result<Kernel, String> {
    let mut names = Names {
        scopes: vec![Scope::default()],
        scope: 0,
        counts: [0; 3],
        symbols: HashMap::new(),
        tables: HashMap::new(),
    };
    for (name, at) in globals {
        // Global variables have addresses of this process, shared ones small offsets into the
        // window.
        let space = if *at < 1 << 20 { Space::Shared } else { Space::Global };
        names.symbols.insert(name.clone(), (space, *at));
    }
    let mut offset = 0usize;
    let mut list = Vec::new();
    for param in params.split(',').map(str::trim).filter(|p| !p.is_empty()) {
        let param = param.replace(".ptr", " ").replace(".global", " ");
        // `.param .u64 .ptr .global .align 16 name`: the alignment is that of the target.
        let pointer = !param.contains('[');
        let (name, size, align) = variable(&param).ok_or_else(|| format!("parameter {param}"))?;
        offset = offset.next_multiple_of(if pointer { size } else { align });
        names.symbols.insert(name, (Space::Param, offset as u64));
        list.push((offset, size));
        offset += size;
    }
    let threads = attributes.split(".reqntid").nth(1).map(|t| {
        let v: Vec<u32> = t.split([',', '.', '\n']).map(str::trim).filter_map(|w| w.parse().ok()).take(3).collect();
        (v[0], *v.get(1).unwrap_or(&1), *v.get(2).unwrap_or(&1))
    });
    let mut shared = module_shared;
    let mut local = 0usize;
    let mut lines: Vec<(usize, &str)> = Vec::new();
    for mut statement in statements(body) {
        // Leading labels, and braces that open or close a scope; other braces hold operands.
        loop {
            statement = statement.trim_start();
            if let Some(rest) = statement.strip_prefix('{') {
                names.scopes.push(Scope { parent: Some(names.scope), ..Default::default() });
                names.scope = names.scopes.len() - 1;
                statement = rest;
                continue;
            }
            if let Some(rest) = statement.strip_prefix('}') {
                names.scope = names.scopes[names.scope].parent.ok_or("a } too many")?;
                statement = rest;
                continue;
            }
            let word = statement.split(|c: char| c.is_whitespace()).next().unwrap_or("");
            // `shared::cta` is not a label.
            if let Some(colon) = word.find(':').filter(|colon| !word[*colon..].starts_with("::")) {
                let label = &word[..colon];
                if let Some(table) = statement[colon + 1..].trim_start().strip_prefix(".branchtargets") {
                    names.tables.insert(label.to_string(), table.split(',').map(str::trim).collect());
                    statement = "";
                    break;
                }
                names.scopes[names.scope].labels.insert(label.to_string(), lines.len());
                statement = &statement[colon + 1..];
                continue;
            }
            break;
        }
        if statement.is_empty()
            || statement.starts_with(".loc\t")
            || statement.starts_with(".loc ")
            || statement.starts_with(".pragma")
        {
            continue;
        }
        if let Some(declaration) = statement.strip_prefix(".reg") {
            let mut words = declaration.trim().splitn(2, char::is_whitespace);
            let ty = words.next().unwrap().trim_start_matches('.');
            let class = match ty {
                "pred" => 2,
                "b64" | "u64" | "s64" | "f64" => 1,
                _ => 0,
            };
            for name in words.next().unwrap_or("").split(',').map(str::trim) {
                let range = match name.split_once('<') {
                    Some((stem, count)) => {
                        let count: u32 = count.trim_end_matches('>').parse().map_err(|_| statement.to_string())?;
                        (0..count).map(|i| format!("{stem}{i}")).collect::<Vec<_>>()
                    }
                    None => vec![name.to_string()],
                };
                for name in range {
                    let index = names.counts[class];
                    names.counts[class] += 1;
                    let reg = [Reg::Word, Reg::Double, Reg::Pred][class](index);
                    names.scopes[names.scope].registers.insert(name, reg);
                }
            }
            continue;
        }
        if statement.starts_with(".local") || statement.starts_with(".shared") {
            let (name, size, align) = variable(statement).ok_or_else(|| statement.to_string())?;
            let (space, used) =
                if statement.starts_with(".local") { (Space::Local, &mut local) } else { (Space::Shared, &mut shared) };
            *used = used.next_multiple_of(align);
            names.symbols.insert(name, (space, *used as u64));
            *used += size;
            continue;
        }
        lines.push((names.scope, statement));
    }
    // Dynamic shared memory follows the static one; its size is set at launch.
    shared = shared.next_multiple_of(dynamic.iter().map(|(_, align)| *align).max().unwrap_or(1));
    for (name, _) in dynamic {
        names.symbols.insert(name.clone(), (Space::Shared, shared as u64));
    }
    let mut code = Vec::with_capacity(lines.len() + 1);
    for (scope, line) in lines {
        names.scope = scope;
        code.push(names.instruction(line).map_err(|e| format!("{e}: {line}"))?);
    }
    code.push(Instruction { guard: None, op: Op::Exit, text: "(end)".into() });
    let reconvergence = reconvergence_points(&code);
    let [words, doubles, preds] = names.counts.map(|n| n as usize);
    Ok(Kernel { name, params: list, code, reconvergence, words, doubles, preds, shared, local, threads })
}

/// Parses a number literal.
fn count(text: &str) -> Result<usize, String> {
    number(text).map(|n| n as usize).ok_or_else(|| format!("{text} is no number"))
}

impl Names<'_> {
    fn find<T>(&self, of: impl Fn(&Scope) -> Option<&T>) -> Option<&T> {
        std::iter::successors(Some(self.scope), |scope| self.scopes[*scope].parent)
            .find_map(|scope| of(&self.scopes[scope]))
    }

    fn register(&self, name: &str) -> Option<Reg> {
        self.find(|scope| scope.registers.get(name)).copied()
    }

    fn label(&self, name: &str) -> Result<usize, String> {
        self.find(|scope| scope.labels.get(name)).copied().ok_or_else(|| format!("no label {name}"))
    }

    fn reg(&self, name: &str) -> Result<Reg, String> {
        if name == "_" {
            return Ok(Reg::None);
        }
        self.register(name).ok_or_else(|| format!("no register {name}"))
    }

    fn regs(&self, text: &str) -> Result<Vec<Reg>, String> {
        match text.strip_prefix('{') {
            Some(list) => list.trim_end_matches('}').split(',').map(|r| self.reg(r.trim())).collect(),
            None => Ok(vec![self.reg(text)?]),
        }
    }

    fn srcs(&self, text: &str) -> Result<Vec<Src>, String> {
        match text.strip_prefix('{') {
            Some(list) => list.trim_end_matches('}').split(',').map(|r| self.src(r.trim())).collect(),
            None => Ok(vec![self.src(text)?]),
        }
    }

    fn src(&self, text: &str) -> Result<Src, String> {
        if let Some(name) = text.strip_prefix('!') {
            return match self.reg(name)? {
                Reg::Pred(p) => Ok(Src::NotPred(p)),
                _ => Err(format!("{text} is no predicate")),
            };
        }
        if let Some(reg) = self.register(text) {
            return Ok(Src::Reg(reg));
        }
        if text == "true" {
            return Ok(Src::Imm(1));
        }
        let axis = |text: &str| match text.chars().last() {
            Some('x') => Some(0u8),
            Some('y') => Some(1),
            Some('z') => Some(2),
            _ => None,
        };
        let special = match text.split('.').next().unwrap_or("") {
            "%tid" => axis(text).map(Special::Tid),
            "%ntid" => axis(text).map(Special::Ntid),
            "%ctaid" => axis(text).map(Special::Ctaid),
            "%nctaid" => axis(text).map(Special::Nctaid),
            "%laneid" => Some(Special::LaneId),
            "%warpid" => Some(Special::WarpId),
            "%lanemask_lt" => Some(Special::LaneMaskLt),
            "%lanemask_le" => Some(Special::LaneMaskLe),
            "%lanemask_gt" => Some(Special::LaneMaskGt),
            "%lanemask_ge" => Some(Special::LaneMaskGe),
            "%lanemask_eq" => Some(Special::LaneMaskEq),
            "%clock" | "%clock64" | "%globaltimer" => Some(Special::Clock),
            _ => None,
        };
        if let Some(special) = special {
            return Ok(Src::Special(special));
        }
        if let Some(value) = number(text) {
            return Ok(Src::Imm(value));
        }
        let (name, offset) = match text.split_once('+') {
            Some((name, offset)) => (name.trim(), number(offset.trim()).ok_or("offset")? as i64),
            None => (text, 0),
        };
        match self.symbols.get(name) {
            Some((space, at)) => {
                let window = if *space == Space::Param { PARAM } else { 0 };
                Ok(Src::Imm((window + at).wrapping_add(offset as u64)))
            }
            None => Err(format!("no operand {text}")),
        }
    }

    fn address(&self, text: &str) -> Result<Address, String> {
        let inner = text.trim_start_matches('[').trim_end_matches(']');
        let split = inner[1..].find(['+', '-']).map(|i| i + 1);
        let (name, offset) = match split {
            Some(i) => {
                let sign = if inner.as_bytes()[i] == b'-' { -1 } else { 1 };
                (inner[..i].trim(), sign * number(inner[i + 1..].trim()).ok_or("offset")? as i64)
            }
            None => (inner.trim(), 0),
        };
        if let Some(reg) = self.register(name) {
            return Ok(Address { base: Some(reg), offset });
        }
        if let Some((_, at)) = self.symbols.get(name) {
            return Ok(Address { base: None, offset: *at as i64 + offset });
        }
        number(name)
            .map(|at| Address { base: None, offset: at as i64 + offset })
            .ok_or_else(|| format!("no address {text}"))
    }
}
