//! Schedules from published tables of sigmas. Each returns N sigmas without the final 0.
#![forbid(unsafe_code)]

/// Which kind of model an Align-Your-Steps table was optimised for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AysLevels {
    /// Images of 512 x 512.
    Image512,
    /// Images of 1024 x 1024.
    Image1024,
    /// Video.
    Video,
}

/// Align Your Steps, 10 steps.
const AYS_IMAGE_512: [f32; 11] = [
    14.614_641,
    6.474_576,
    3.863_674_6,
    2.694_615_2,
    1.884_192_1,
    1.394_380_5,
    0.964_258_4,
    0.652_368_6,
    0.397_745_63,
    0.151_523_27,
    0.029_167_158,
];
const AYS_IMAGE_1024: [f32; 11] = [
    14.614_641,
    6.318_448_5,
    3.768_179,
    2.181_148,
    1.340_524_5,
    0.862_072_1,
    0.555_069_3,
    0.379_854_08,
    0.233_236_41,
    0.111_418_82,
    0.029_167_158,
];
const AYS_VIDEO: [f32; 11] = [700.0, 54.5, 15.886, 7.977, 4.248, 1.789, 0.981, 0.403, 0.173, 0.034, 0.002];

/// Log-linear interpolation of the 10-step table.
pub(super) fn align_your_steps(n: usize, levels: AysLevels) -> Vec<f32> {
    let table = match levels {
        AysLevels::Image512 => &AYS_IMAGE_512,
        AysLevels::Image1024 => &AYS_IMAGE_1024,
        AysLevels::Video => &AYS_VIDEO,
    };
    if n + 1 == table.len() { table[..n].to_vec() } else { log_linear(table, n) }
}

/// The table up to 20 steps, interpolated beyond; one step starts at the table's largest sigma.
pub(super) fn gits(n: usize) -> Vec<f32> {
    match n {
        1 => vec![GITS_1_20[0][0]],
        2..=20 => GITS_1_20[n - 2].to_vec(),
        _ => {
            let mut last = GITS_1_20[18].to_vec();
            last.push(GITS_SIGMA_MIN);
            log_linear(&last, n)
        }
    }
}

/// `count` values from `start` to `end`, accumulated in single precision as the reference does.
pub(super) fn linear_space(start: f32, end: f32, count: usize) -> impl Iterator<Item = f32> {
    let step = (end - start) / (count as f32 - 1.0);
    let mut next = start;
    (0..count).map(move |_| {
        let value = next;
        next += step;
        value
    })
}

/// N of N + 1 points through a descending table, equally spaced, linear in log sigma.
fn log_linear(table: &[f32], n: usize) -> Vec<f32> {
    let positions: Vec<f32> = linear_space(0.0, 1.0, table.len()).collect();
    let logs: Vec<f32> = table.iter().rev().map(|sigma| sigma.ln()).collect();
    let end = positions[positions.len() - 1];
    let mut interval = 0;
    let mut ascending: Vec<f32> = linear_space(0.0, 1.0, n + 1)
        .map(|x| {
            let x = x.min(end);
            while x > positions[interval + 1] {
                interval += 1;
            }
            let (left, right) = (positions[interval], positions[interval + 1]);
            let share = f64::from(x - left) / f64::from(right - left);
            (f64::from(logs[interval]) * (1.0 - share) + f64::from(logs[interval + 1]) * share).exp() as f32
        })
        .collect();
    ascending.reverse();
    ascending.truncate(n);
    ascending
}

/// Last sigma of every GITS table, left out below.
const GITS_SIGMA_MIN: f32 = 0.029_167_53;

/// GITS sigmas for coefficient 1.20, 2 to 20 steps.
#[rustfmt::skip]
const GITS_1_20: [&[f32]; 19] = [
    &[14.614641, 0.803307],
    &[14.614641, 1.5627164, 0.52423614],
    &[14.614641, 2.3632607, 0.9219232, 0.36617002],
    &[14.614641, 2.8448498, 1.2415324, 0.5951632, 0.25053367],
    &[14.614641, 5.855201, 2.050391, 0.9535092, 0.4557369, 0.17026083],
    &[14.614641, 5.855201, 2.4507027, 1.2415324, 0.64427125, 0.29807833, 0.09824532],
    &[14.614641, 5.855201, 2.4507027, 1.3696446, 0.803307, 0.4557369, 0.25053367, 0.09824532],
    &[14.614641, 5.855201, 2.8448498, 1.6155815, 0.9535092, 0.5951632, 0.36617002, 0.19894916, 0.09824532],
    &[14.614641, 5.855201, 2.8448498, 1.6705002, 1.0889534, 0.7480705, 0.5011838, 0.32104823, 0.19894916,
      0.09824532],
    &[14.614641, 5.855201, 2.955964, 1.8488066, 1.2415324, 0.83188516, 0.5951632, 0.41087446, 0.27464288,
      0.17026083, 0.09824532],
    &[14.614641, 5.855201, 3.0727797, 1.9803514, 1.3696446, 0.9535092, 0.6951509, 0.5011838, 0.36617002,
      0.25053367, 0.17026083, 0.09824532],
    &[14.614641, 6.773091, 3.4613945, 2.3632607, 1.5627164, 1.0889534, 0.803307, 0.5951632, 0.4557369,
      0.34370604, 0.25053367, 0.17026083, 0.09824532],
    &[14.614641, 6.773091, 3.4613945, 2.4507027, 1.6155815, 1.162866, 0.86115354, 0.64427125, 0.5011838,
      0.38853383, 0.29807833, 0.22545385, 0.17026083, 0.09824532],
    &[14.614641, 7.4900165, 4.654728, 3.0727797, 2.123506, 1.5117927, 1.0889534, 0.83188516, 0.64427125,
      0.5011838, 0.38853383, 0.29807833, 0.22545385, 0.17026083, 0.09824532],
    &[14.614641, 7.4900165, 4.654728, 3.0727797, 2.123506, 1.5117927, 1.0889534, 0.83188516, 0.64427125,
      0.5011838, 0.41087446, 0.32104823, 0.25053367, 0.19894916, 0.13792117, 0.09824532],
    &[14.614641, 7.4900165, 4.654728, 3.0727797, 2.123506, 1.5117927, 1.0889534, 0.83188516, 0.64427125,
      0.5011838, 0.41087446, 0.34370604, 0.27464288, 0.22545385, 0.17026083, 0.13792117, 0.09824532],
    &[14.614641, 7.4900165, 4.654728, 3.0727797, 2.1998854, 1.6155815, 1.2015727, 0.9219232, 0.7213385,
      0.5711902, 0.4557369, 0.36617002, 0.29807833, 0.25053367, 0.19894916, 0.17026083, 0.13792117,
      0.09824532],
    &[14.614641, 7.4900165, 4.654728, 3.0727797, 2.1998854, 1.6155815, 1.2415324, 0.9535092, 0.7480705,
      0.5951632, 0.4783645, 0.38853383, 0.32104823, 0.27464288, 0.22545385, 0.19894916, 0.17026083,
      0.13792117, 0.09824532],
    &[14.614641, 7.4900165, 4.654728, 3.0727797, 2.1998854, 1.6155815, 1.2415324, 0.9535092, 0.7480705,
      0.5951632, 0.5011838, 0.41087446, 0.34370604, 0.29807833, 0.25053367, 0.22545385, 0.19894916,
      0.17026083, 0.13792117, 0.09824532],
];
