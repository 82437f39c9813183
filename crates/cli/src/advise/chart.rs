//! The advice as a page with two charts: reads a second by depth, and the check's time by threads.

use super::{print, short, Advice, DEPTHS};
use plotters::coord::ranged1d::{KeyPointHint, Ranged};
use plotters::prelude::*;

const SIZE: (u32, u32) = (760, 420);
const COLOURS: [RGBColor; 8] = [
    RGBColor(192, 57, 43),
    RGBColor(41, 128, 185),
    RGBColor(39, 174, 96),
    RGBColor(142, 68, 173),
    RGBColor(243, 156, 18),
    RGBColor(22, 160, 133),
    RGBColor(127, 140, 141),
    RGBColor(44, 62, 80),
];

/// A line of a chart: what it is and its points (depth, value).
type Series = (String, Vec<(f64, f64)>);

/// The whole page, which needs no other file.
///
/// # Errors
/// A sentence, if a chart cannot be drawn.
pub fn page(advice: &Advice) -> Result<String, String> {
    let reads: Vec<Series> = advice
        .curves
        .iter()
        .map(|m| {
            let name = format!("{} KiB, {}", m.curve.read_bytes >> 10, print::way(m.curve.way));
            (name, m.curve.points.iter().map(|p| (p.depth as f64, p.iops)).collect())
        })
        .collect();
    let mut times: Vec<Series> = Vec::new();
    for check in &advice.checks {
        let name = if check.light { "light" } else { "page" };
        times.push((format!("{name}, threads"), check.by_threads.iter().map(|s| (s.0 as f64, s.1)).collect()));
        if let Some(seconds) = check.by_ring {
            times.push((format!("{name}, one io_uring"), DEPTHS.map(|d| (d as f64, seconds)).into()));
        }
        times.push((format!("{name}, MySQL's rule"), vec![(advice.mysql_threads as f64, check.mysql)]));
    }
    let corner = SeriesLabelPosition::UpperLeft;
    let reads = svg("Random reads a second, by requests in flight", ("in flight", "reads/s"), corner, &reads)?;
    let files = advice.cost.files;
    let heading = format!("Predicted seconds to check {files} files, by threads");
    let times = svg(&heading, ("threads", "seconds"), SeriesLabelPosition::UpperRight, &times)?;
    let title = escape(short(&advice.dir));
    let text = escape(&print::text(advice));
    Ok(format!(
        "<!doctype html><meta charset=utf-8><title>myriad advise: {title}</title>\
         <style>body{{font-family:sans-serif;max-width:60em;margin:2em auto}}pre{{overflow-x:auto}}</style>\
         <h1>myriad advise: {title}</h1>\n{reads}\n{times}\n<pre>{text}</pre>\n"
    ))
}

fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

fn svg(title: &str, names: (&str, &str), corner: SeriesLabelPosition, series: &[Series]) -> Result<String, String> {
    let mut out = String::new();
    draw(&mut out, title, names, corner, series).map_err(|e| format!("cannot draw the chart: {e}"))?;
    Ok(out)
}

fn draw(
    out: &mut String,
    title: &str,
    names: (&str, &str),
    corner: SeriesLabelPosition,
    series: &[Series],
) -> Result<(), Box<dyn std::error::Error>> {
    let most = series.iter().flat_map(|s| &s.1).map(|p| p.1).fold(0.0, f64::max).max(f64::MIN_POSITIVE);
    let area = SVGBackend::with_string(out, SIZE).into_drawing_area();
    area.fill(&WHITE)?;
    let mut chart = ChartBuilder::on(&area)
        .caption(title, ("sans-serif", 18))
        .margin(10)
        .x_label_area_size(40)
        .y_label_area_size(70)
        .build_cartesian_2d(Depths, 0.0..most * 1.05)?;
    let digits = if most < 10.0 { 2 } else { 0 };
    let mut mesh = chart.configure_mesh();
    mesh.x_desc(names.0).y_desc(names.1).x_label_formatter(&|x| format!("{x:.0}"));
    mesh.y_label_formatter(&|y| format!("{y:.digits$}")).draw()?;
    for (number, (name, points)) in series.iter().enumerate() {
        let colour = COLOURS[number % COLOURS.len()];
        let line = LineSeries::new(points.iter().copied(), colour.stroke_width(2)).point_size(3);
        chart.draw_series(line)?.label(name).legend(move |(x, y)| PathElement::new([(x, y), (x + 18, y)], colour));
    }
    chart.configure_series_labels().position(corner).background_style(WHITE.mix(0.8)).draw()?;
    area.present()?;
    Ok(())
}

/// An axis on which each doubling takes the same room, marked where was measured.
struct Depths;

impl Ranged for Depths {
    type FormatOption = plotters::coord::ranged1d::NoDefaultFormatting;
    type ValueType = f64;

    fn map(&self, value: &f64, limit: (i32, i32)) -> i32 {
        let share = value.max(1.0).log2() / (DEPTHS[DEPTHS.len() - 1] as f64).log2();
        limit.0 + (share * f64::from(limit.1 - limit.0)).round() as i32
    }

    fn key_points<Hint: KeyPointHint>(&self, _: Hint) -> Vec<f64> {
        DEPTHS.map(|d| d as f64).into()
    }

    fn range(&self) -> std::ops::Range<f64> {
        1.0..DEPTHS[DEPTHS.len() - 1] as f64
    }
}

impl plotters::coord::ranged1d::ValueFormatter<f64> for Depths {}
