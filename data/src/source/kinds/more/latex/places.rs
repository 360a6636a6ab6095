//! Where formulas, braces and paragraphs of LaTeX begin and end.

/// Whether the line that comes is blank, which parts paragraphs.
pub fn begins_blank(text: &str) -> bool {
    text.trim_start_matches([' ', '\t']).starts_with('\n')
}

/// What stands behind blanks, which may have a line end among them.
pub fn behind_blanks(text: &str) -> &str {
    let line = text.trim_start_matches([' ', '\t']);
    line.strip_prefix('\n').map_or(line, |next| next.trim_start_matches([' ', '\t']))
}

/// How long a formula is that ends with `mark`; where its paragraph ends before, how far that is.
pub fn formula_length(text: &str, mark: &str) -> Result<usize, usize> {
    let mut escaped = false;
    for (at, byte) in text.bytes().enumerate() {
        match byte {
            _ if escaped => escaped = false,
            b'\\' => escaped = true,
            b'$' if text[at..].starts_with(mark) => return Ok(at),
            b'\n' if begins_blank(&text[at + 1..]) => return Err(at),
            _ => {}
        }
    }
    Err(text.len())
}

/// Where each brace that is opened is closed, in order.
pub fn braces(text: &str) -> Vec<(u32, u32)> {
    let (mut open, mut pairs) = (Vec::new(), Vec::new());
    let mut escaped = false;
    for (at, byte) in text.bytes().enumerate() {
        match byte {
            _ if escaped => escaped = false,
            b'\\' => escaped = true,
            b'{' => {
                open.push(pairs.len());
                pairs.push((at as u32, u32::MAX));
            }
            b'}' => {
                if let Some(pair) = open.pop() {
                    pairs[pair].1 = at as u32;
                }
            }
            _ => {}
        }
    }
    pairs
}
