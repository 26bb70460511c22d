//! Python's `strftime`, in UTC and the language C.

const DAYS: [&str; 7] = ["Sunday", "Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday"];
const MONTHS: [&str; 12] = [
    "January",
    "February",
    "March",
    "April",
    "May",
    "June",
    "July",
    "August",
    "September",
    "October",
    "November",
    "December",
];

/// Writes a moment in seconds since 1970 as `format` says, or returns what is wrong with the format.
pub(super) fn strftime(unix_seconds: i64, format: &str) -> Result<String, String> {
    let (days, second) = (unix_seconds.div_euclid(86_400), unix_seconds.rem_euclid(86_400));
    let (year, month, day) = civil(days);
    let (hour, minute, second) = (second / 3600, second / 60 % 60, second % 60);
    let weekday = DAYS[(days + 4).rem_euclid(7) as usize];
    let month_name = MONTHS[(month - 1) as usize];
    let mut out = String::new();
    let mut letters = format.chars();
    while let Some(letter) = letters.next() {
        if letter != '%' {
            out.push(letter);
            continue;
        }
        let directive = letters.next();
        let (directive, is_bare) = if directive == Some('-') { (letters.next(), true) } else { (directive, false) };
        let two = |number: i64| if is_bare { number.to_string() } else { format!("{number:02}") };
        out += &match directive {
            Some('Y') => year.to_string(),
            Some('y') => two(year.rem_euclid(100)),
            Some('m') => two(month),
            Some('d') => two(day),
            Some('H') => two(hour),
            Some('I') => two((hour + 11) % 12 + 1),
            Some('M') => two(minute),
            Some('S') => two(second),
            Some('j') => format!("{:03}", days - days_of(year) + 1),
            Some('p') => if hour < 12 { "AM" } else { "PM" }.to_owned(),
            Some('B') => month_name.to_owned(),
            Some('b') => month_name[..3].to_owned(),
            Some('A') => weekday.to_owned(),
            Some('a') => weekday[..3].to_owned(),
            Some('F') => format!("{year}-{month:02}-{day:02}"),
            Some('T') => format!("{hour:02}:{minute:02}:{second:02}"),
            Some('%') => "%".to_owned(),
            Some(other) => return Err(format!("strftime_now knows no `%{other}`")),
            None => return Err("strftime_now got a format that ends in `%`".to_owned()),
        };
    }
    Ok(out)
}

/// Returns the moment at which a day written as `YYYY-MM-DD` begins, in seconds since 1970; `None` if there is no such day.
#[must_use]
pub fn unix_s_of_date(date: &str) -> Option<i64> {
    let parts: Vec<&str> = date.split('-').collect();
    let is_number = |part: &str| part.bytes().all(|byte| byte.is_ascii_digit());
    if parts.iter().map(|part| part.len()).ne([4, 2, 2]) || !parts.iter().all(|part| is_number(part)) {
        return None;
    }
    let [year, month, day] = [0, 1, 2].map(|at| parts[at].parse().unwrap_or_default());
    let first = days_of(year);
    (first..first + 366).find(|days| civil(*days) == (year, month, day)).map(|days| days * 86_400)
}

/// Returns year, month and day of a day that is counted from 1970-01-01 (Howard Hinnant, "chrono-compatible low-level date algorithms").
fn civil(days: i64) -> (i64, i64, i64) {
    let shifted = days + 719_468;
    let (era, of_era) = (shifted.div_euclid(146_097), shifted.rem_euclid(146_097));
    let year = (of_era - of_era / 1460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year + year / 4 - year / 100);
    let shifted_month = (5 * of_year + 2) / 153;
    let day = of_year - (153 * shifted_month + 2) / 5 + 1;
    let month = if shifted_month < 10 { shifted_month + 3 } else { shifted_month - 9 };
    (year + era * 400 + i64::from(month <= 2), month, day)
}

/// Returns the day of a year's first of January, counted from 1970-01-01.
fn days_of(year: i64) -> i64 {
    let before = year - 1;
    before * 365 + before.div_euclid(4) - before.div_euclid(100) + before.div_euclid(400) - 719_162
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_are_those_of_python() {
        // datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%d %H:%M:%S %a %b %j %I%p")
        for (seconds, expected) in [
            (0, "1970-01-01 00:00:00 Thu Jan 001 12AM"),
            (951_827_696, "2000-02-29 12:34:56 Tue Feb 060 12PM"),
            (1_735_689_599, "2024-12-31 23:59:59 Tue Dec 366 11PM"),
            (-86_401, "1969-12-30 23:59:59 Tue Dec 364 11PM"),
        ] {
            assert_eq!(strftime(seconds, "%Y-%m-%d %H:%M:%S %a %b %j %I%p").unwrap(), expected);
        }
        assert_eq!(strftime(0, "%-d %B %A %% %F %T").unwrap(), "1 January Thursday % 1970-01-01 00:00:00");
        assert!(strftime(0, "%Q").unwrap_err().contains("`%Q`"));
        assert!(strftime(0, "%").is_err());
    }

    #[test]
    fn a_date_is_a_day_that_there_is() {
        for date in ["1970-01-01", "2000-02-29", "2024-12-31", "1969-03-01"] {
            assert_eq!(strftime(unix_s_of_date(date).unwrap(), "%F %T").unwrap(), format!("{date} 00:00:00"));
        }
        for wrong in ["2023-02-29", "2024-13-01", "2024-00-10", "2024-1-1", "20240101", "+024-01-01", ""] {
            assert_eq!(unix_s_of_date(wrong), None, "{wrong}");
        }
    }
}
