//! Dates and times as Python's `strftime` writes them in English, for templates that tell the day.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

const DAYS: [&str; 7] = ["Sunday", "Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday"];

#[rustfmt::skip]
const MONTHS: [&str; 12] = [
    "January", "February", "March", "April", "May", "June",
    "July", "August", "September", "October", "November", "December",
];

/// The time now, of UTC.
///
/// # Errors
/// Names a mark that is not known.
pub(super) fn now(format: &str) -> Result<String, String> {
    Moment::new(SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default()).text(format)
}

/// A moment of UTC, by the parts that are written.
struct Moment {
    since_1970: Duration,
    year: i64,
    /// From 1, like the day.
    month: i64,
    day: i64,
    /// From 1.
    day_of_year: i64,
    /// From Sunday, which is 0.
    weekday: i64,
    hour: i64,
    minute: i64,
    second: i64,
}

impl Moment {
    fn new(since_1970: Duration) -> Self {
        let seconds = since_1970.as_secs() as i64;
        let days = seconds / 86_400;
        let [year, month, day] = date(days);
        Self {
            since_1970,
            year,
            month,
            day,
            day_of_year: days - days_before(year) + 1,
            weekday: (days + 4) % 7,
            hour: seconds / 3600 % 24,
            minute: seconds / 60 % 60,
            second: seconds % 60,
        }
    }

    fn text(&self, format: &str) -> Result<String, String> {
        let (mut text, mut rest) = (String::new(), format.chars());
        while let Some(character) = rest.next() {
            if character != '%' {
                text.push(character);
                continue;
            }
            let first = rest.next();
            // `%-d` is `%d` without what fills it up.
            let is_bare = first == Some('-');
            let Some(mark) = (if is_bare { rest.next() } else { first }) else {
                text.push_str(if is_bare { "%-" } else { "%" });
                break;
            };
            let written = self.part(mark).ok_or_else(|| format!("strftime_now does not know %{mark}"))?;
            text.push_str(if is_bare { bare(&written) } else { &written });
        }
        Ok(text)
    }

    /// What one mark stands for.
    fn part(&self, mark: char) -> Option<String> {
        let Self { year, month, day, day_of_year, weekday, hour, minute, second, .. } = *self;
        let hour_of_twelve = (hour + 11) % 12 + 1;
        let half = if hour < 12 { "AM" } else { "PM" };
        Some(match mark {
            'a' => DAYS[weekday as usize][..3].to_owned(),
            'A' => DAYS[weekday as usize].to_owned(),
            'b' | 'h' => MONTHS[month as usize - 1][..3].to_owned(),
            'B' => MONTHS[month as usize - 1].to_owned(),
            'c' => self.text("%a %b %e %H:%M:%S %Y").ok()?,
            'C' => format!("{:02}", year / 100),
            'd' => format!("{day:02}"),
            'D' | 'x' => self.text("%m/%d/%y").ok()?,
            'e' => format!("{day:2}"),
            'f' => format!("{:06}", self.since_1970.subsec_micros()),
            'F' => self.text("%Y-%m-%d").ok()?,
            'g' => format!("{:02}", self.iso_week().0 % 100),
            'G' => self.iso_week().0.to_string(),
            'H' => format!("{hour:02}"),
            'I' => format!("{hour_of_twelve:02}"),
            'j' => format!("{day_of_year:03}"),
            'k' => format!("{hour:2}"),
            'l' => format!("{hour_of_twelve:2}"),
            'm' => format!("{month:02}"),
            'M' => format!("{minute:02}"),
            'n' => "\n".to_owned(),
            'p' => half.to_owned(),
            'P' => half.to_lowercase(),
            'r' => self.text("%I:%M:%S %p").ok()?,
            'R' => self.text("%H:%M").ok()?,
            's' => self.since_1970.as_secs().to_string(),
            'S' => format!("{second:02}"),
            't' => "\t".to_owned(),
            'T' | 'X' => self.text("%H:%M:%S").ok()?,
            'u' => ((weekday + 6) % 7 + 1).to_string(),
            // Weeks that begin with a Sunday, and with a Monday; the days before the first are week 0.
            'U' => format!("{:02}", (day_of_year + 6 - weekday) / 7),
            'V' => format!("{:02}", self.iso_week().1),
            'w' => weekday.to_string(),
            'W' => format!("{:02}", (day_of_year + 6 - (weekday + 6) % 7) / 7),
            'y' => format!("{:02}", year % 100),
            'Y' => year.to_string(),
            // `datetime.now()` has no zone.
            'z' | 'Z' => String::new(),
            '%' => "%".to_owned(),
            _ => return None,
        })
    }

    /// The year and week of ISO 8601, whose weeks belong to the year that their Thursday is in.
    fn iso_week(&self) -> (i64, i64) {
        let thursday = self.day_of_year + 3 - (self.weekday + 6) % 7;
        let length = |year: i64| days_before(year + 1) - days_before(year);
        let (year, thursday) = match thursday {
            early if early < 1 => (self.year - 1, early + length(self.year - 1)),
            late if late > length(self.year) => (self.year + 1, late - length(self.year)),
            within => (self.year, within),
        };
        (year, (thursday + 6) / 7)
    }
}

/// A part without the zeros or blanks that fill it up.
fn bare(written: &str) -> &str {
    match written.trim_start_matches(['0', ' ']) {
        "" => &written[written.len().saturating_sub(1)..],
        digits => digits,
    }
}

/// Days from 1970-01-01 to the first of a year.
fn days_before(year: i64) -> i64 {
    let past = year - 1;
    365 * past + past / 4 - past / 100 + past / 400 - 719_162
}

/// Year, month and day so many days after 1970-01-01, by the calendar of 400 years.
fn date(days: i64) -> [i64; 3] {
    // Years here begin in March, so that a leap day is the last of its year.
    let days = days + 719_468;
    let (era, day) = (days.div_euclid(146_097), days.rem_euclid(146_097));
    let year = (day - day / 1_460 + day / 36_524 - day / 146_096) / 365;
    let of_year = day - (365 * year + year / 4 - year / 100);
    let month = (5 * of_year + 2) / 153;
    let day = of_year - (153 * month + 2) / 5 + 1;
    let [month, later] = if month < 10 { [month + 3, 0] } else { [month - 9, 1] };
    [year + era * 400 + later, month, day]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn days_are_dates() {
        assert_eq!(date(0), [1970, 1, 1]);
        assert_eq!(date(19_782), [2024, 2, 29]);
        assert_eq!(date(20_779), [2026, 11, 22]);
        for (days, year) in [(0, 1970), (10_957, 2000), (19_723, 2024), (20_089, 2025)] {
            assert_eq!((days_before(year), date(days)), (days, [year, 1, 1]));
        }
    }

    /// What Python's `strftime` gives.
    #[test]
    fn marks_are_those_of_python() {
        let all = "%a %A %b %B %C %d %e %g %G %H %I %j %k %l %m %M %p %S %u %U %V %w %W %y %Y%z%Z %% %-d %-m %-H %f %s";
        let cases = [
            (
                0,
                "Thu Thursday Jan January 19 01  1 70 1970 00 12 001  0 12 01 00 AM 00 4 00 01 4 00 70 1970 % 1 1 0 000000 0",
            ),
            (
                1_709_210_096,
                "Thu Thursday Feb February 20 29 29 24 2024 12 12 060 12 12 02 34 PM 56 4 08 09 4 09 24 2024 % 29 2 12 000000 \
                 1709210096",
            ),
            (
                1_735_603_199,
                "Mon Monday Dec December 20 30 30 25 2025 23 11 365 23 11 12 59 PM 59 1 52 01 1 53 24 2024 % 30 12 23 000000 \
                 1735603199",
            ),
            (
                1_798_761_599,
                "Thu Thursday Dec December 20 31 31 26 2026 23 11 365 23 11 12 59 PM 59 4 52 53 4 52 26 2026 % 31 12 23 000000 \
                 1798761599",
            ),
        ];
        for (seconds, expected) in cases {
            assert_eq!(Moment::new(Duration::from_secs(seconds)).text(all).as_deref(), Ok(expected));
        }
        let joined = Moment::new(Duration::from_secs(1_709_210_096)).text("%c|%D|%F|%r|%R|%T|%x|%X|%h|%P|%n%t|%");
        let expected =
            "Thu Feb 29 12:34:56 2024|02/29/24|2024-02-29|12:34:56 PM|12:34|12:34:56|02/29/24|12:34:56|Feb|pm|\n\t|%";
        assert_eq!(joined.as_deref(), Ok(expected));
    }

    #[test]
    fn a_mark_that_is_not_known_is_named() {
        assert_eq!(now("%d %Q").as_deref(), Err(&"strftime_now does not know %Q".to_owned()));
    }
}
