//! Pages made into running text: what stands at the top and bottom of page after page goes, and words
//! that a line had cut are joined.

use super::Changes;
use std::collections::HashMap;

/// Lines at the top and at the bottom of a page among which what repeats is looked for.
const EDGE_LINES: usize = 3;

/// What stands on fewer pages than this does not repeat.
const FEWEST_PAGES: usize = 3;

/// Pages among which a line that repeats is looked for: a chapter's heading changes.
const NEIGHBOURS: usize = 10;

/// The pages as one text. Lines at their edges go where the same stands, but for its numbers, at the
/// same edge of at least three pages of the twenty around; so do page numbers, by the same rule.
pub fn running(pages: &[String], changes: &mut Changes) -> String {
    let pages: Vec<Vec<&str>> = pages.iter().map(|page| page.lines().collect()).collect();
    let repeated = Repeated::of(&pages);
    let mut lines: Vec<&str> = Vec::new();
    for (number, page) in pages.iter().enumerate() {
        let kept = |(place, line): (usize, &&'_ str)| !repeated.is(number, place, page.len(), line);
        let before = lines.len();
        lines.extend(page.iter().enumerate().filter(|&(place, line)| kept((place, line))).map(|(_, line)| *line));
        let left_out = page.iter().filter(|line| !line.trim().is_empty()).count()
            - lines[before..].iter().filter(|line| !line.trim().is_empty()).count();
        changes.page_lines += left_out as u64;
    }
    joined(&lines, changes)
}

/// Where lines repeat, by what they are but for their numbers.
struct Repeated {
    /// The pages that have the line at this edge (top: true).
    pages: HashMap<(bool, String), Vec<usize>>,
}

impl Repeated {
    fn of(pages: &[Vec<&str>]) -> Self {
        let mut found: HashMap<(bool, String), Vec<usize>> = HashMap::new();
        for (number, page) in pages.iter().enumerate() {
            for (place, line) in page.iter().enumerate() {
                for top in edges(page, place) {
                    let on = found.entry((top, form(line))).or_default();
                    if on.last() != Some(&number) {
                        on.push(number);
                    }
                }
            }
        }
        Self { pages: found }
    }

    fn is(&self, number: usize, place: usize, count: usize, line: &str) -> bool {
        let is_top = place < EDGE_LINES;
        let is_bottom = place + EDGE_LINES >= count;
        let form = form(line);
        if form.is_empty() {
            return false;
        }
        let repeats = |top: bool| {
            let on = self.pages.get(&(top, form.clone())).map_or(&[][..], Vec::as_slice);
            let before = |end: usize| on.partition_point(|&page| page < end);
            before(number + NEIGHBOURS + 1) - before(number.saturating_sub(NEIGHBOURS)) >= FEWEST_PAGES
        };
        (is_top && repeats(true)) || (is_bottom && repeats(false))
    }
}

/// At which edges of its page a line stands (top: true), of those that are not empty.
fn edges(page: &[&str], place: usize) -> Vec<bool> {
    if page[place].trim().is_empty() {
        return Vec::new();
    }
    let top = (place < EDGE_LINES).then_some(true);
    let bottom = (place + EDGE_LINES >= page.len()).then_some(false);
    top.into_iter().chain(bottom).collect()
}

/// What a line is but for its numbers and blanks.
fn form(line: &str) -> String {
    let mut form = String::new();
    for character in line.trim().chars() {
        match character {
            character if character.is_numeric() => {
                if !form.ends_with('0') {
                    form.push('0');
                }
            }
            character if character.is_whitespace() => {}
            character => form.push(character),
        }
    }
    form
}

/// Lines as a text, in which a word that ends a line with a hyphen goes on with the small letter that
/// begins the next.
fn joined(lines: &[&str], changes: &mut Changes) -> String {
    let mut text = String::new();
    for line in lines {
        let goes_on = line.starts_with(char::is_lowercase);
        match text.strip_suffix("-\n").or_else(|| text.strip_suffix("\u{ad}\n")).map(str::len) {
            Some(end) if goes_on && text[..end].ends_with(char::is_alphabetic) => {
                text.truncate(end);
                changes.hyphens += 1;
            }
            _ => {}
        }
        text.push_str(line);
        text.push('\n');
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headers_numbers_and_hyphens_of_pages_go_and_are_counted() {
        let page = |n: u32, text: &str| format!("A BOOK OF MINE\n{text}\nPage {n}\n");
        let pages: Vec<String> = ["One line is long enough to be hyphen-", "ated on the next page.", "Well-", "Known."]
            .into_iter()
            .zip(1..)
            .map(|(text, n)| page(n, text))
            .collect();
        let mut changes = Changes::default();
        let expected = "One line is long enough to be hyphenated on the next page.\nWell-\nKnown.\n";
        assert_eq!(running(&pages, &mut changes), expected);
        assert_eq!((changes.page_lines, changes.hyphens), (8, 1));
    }

    #[test]
    fn what_does_not_repeat_stays() {
        let pages = ["1\nOne\n".to_owned(), "2\nTwo\n".to_owned()];
        let mut changes = Changes::default();
        assert_eq!(running(&pages, &mut changes), "1\nOne\n2\nTwo\n");
        assert_eq!(changes, Changes::default());
    }
}
