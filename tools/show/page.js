// Draws the runs of the JSON above with Chart.js. Every text of a file goes through textContent, so
// none of it is ever markup.
'use strict';

const css = name => getComputedStyle(document.documentElement).getPropertyValue('--' + name).trim();

function el(tag, attributes = {}, ...children) {
  const element = Object.assign(document.createElement(tag), attributes);
  element.append(...children.filter(child => child !== null));
  return element;
}

// Three significant digits: "0.031", "4.38", "116".
function short(value) {
  const size = Math.abs(value);
  if (size >= 1e7 || (size > 0 && size < 1e-4)) return value.toExponential(2);
  return String(size >= 100 ? Math.round(value) : Number(value.toPrecision(3)));
}

const secondsUnit = most => most >= 1 ? [1, 's'] : most >= 1e-3 ? [1e-3, 'ms'] : [1e-6, 'us'];
const bytesUnit = most =>
    most >= 2 ** 30 ? [2 ** 30, 'GiB'] : most >= 2 ** 20 ? [2 ** 20, 'MiB'] : [2 ** 10, 'KiB'];
const inUnit = (value, [size, name]) => `${short(value / size)} ${name}`;
const seconds = value => value === 0 ? '0' : inUnit(value, secondsUnit(value));
const percent = (fraction, digits = 0) => `${(100 * fraction).toFixed(digits)} %`;
const most = values => Math.max(...values, 0);
const plural = (count, noun) => `${count} ${noun}${count === 1 ? '' : 's'}`;
const unique = values => [...new Set(values)];

// ---- Reading a run file ----

// The validation loss after each epoch, with the number of that epoch's last step.
function validation(file, row) {
  const losses = row.epoch_validation_loss ?? [];
  const steps = file.workload ? Math.ceil(file.workload.rows_per_epoch / row.batch) : Math.floor(row.iterations / losses.length);
  return losses.map((loss, i) => ({step: i + 1 < losses.length ? (i + 1) * steps : row.iterations, loss}));
}

// The speed-ups between which nine of ten published rows like it lie; null where none is known.
function speedupBand(row) {
  if (row.speedup_band) return row.speedup_band;
  if (!row.step_seconds_band || !row.speedup || row.devices < 2) return null;
  return row.step_seconds_band.map(seconds => row.speedup * row.step_seconds / seconds).reverse();
}

// A field that the file leaves out, or has as null.
const missing = {
  kind: 'measured', what_if: '', topology: '', slow_motion: 1, speedup: null, ideal_speedup: null, efficiency: null,
  median_epoch_seconds: null, epoch_seconds: [], overlapped_comm_seconds: 0, comm_bytes_per_device_per_step: 0,
  busy_fraction: [], peak_bytes: [], peak_bytes_beside_steps: [], epoch_accuracy: [],
};

// A row under the names of the file, and what the charts add to it.
function readRow(file, fields) {
  const row = {...missing, ...Object.fromEntries(Object.entries(fields).filter(([, value]) => value !== null))};
  return {
    ...row, name: `${row.mode} x${row.devices}${row.what_if && ` (${row.what_if})`}`,
    cpu: row.kind === 'measured' && file.config?.device !== 'cuda', rows_per_device: Math.floor(row.batch / row.devices),
    equal: row.verdict?.equal ?? null, speedupBand: speedupBand(row), validation: validation(file, row),
    losses: {steps_per_point: row.losses?.steps_per_point ?? 1, mean: row.losses?.mean ?? []},
  };
}

const readRun = run => ({...run, rows: run.file.rows.map(row => readRow(run.file, row))});

// Up to 5 % more than the ideal is noise.
const shownEfficiency = value => value > 1.05 ? value : Math.min(1, value);

// ---- Rows, and which of them may share an axis ----

const isGrowing = run => {
  const batches = {};
  return run.rows.some(
      row => (batches[[row.mode, row.devices, row.what_if]] ??= row.batch) !== row.batch);
};

const kindOf = row => row.kind === 'acted' ? 'slow motion' : row.kind;

// Times of this machine's CPU say nothing beside those of GPUs, so they have charts of their own.
function worldsOf(run) {
  const cpu = run.rows.filter(row => row.cpu), other = run.rows.filter(row => !row.cpu);
  const topologies = unique(other.filter(row => row.topology).map(row => row.topology)).join(', ');
  const kinds = unique(other.map(kindOf)).join(' and ');
  return [
    {rows: cpu, title: "Measured on this machine's CPU", short: 'measured'},
    {rows: other, title: `GPUs: ${topologies}${topologies && ', '}${kinds}`, short: kinds},
  ].filter(world => world.rows.length > 0);
}

// The label that tells a row from others of its world.
function labelOf(run, world, row) {
  const notes = [];
  if (isGrowing(run)) notes.push(plural(row.rows_per_device, 'row'));
  if (unique(world.rows.map(kindOf)).length > 1) notes.push(kindOf(row));
  return [row.name + (row.contended ? '*' : ''), ...(notes.length ? [notes.join(', ')] : [])];
}

const modes = ['hierarchical', 'zero1', 'zero3', 'pipeline', 'device_allreduce', 'nccl_replicated',
  'cpu_reduce', 'cpu_parameter_server'];
function colorOf(mode) {
  if (['single', 'dp', 'ddp'].includes(mode)) return css(mode);
  return css('c' + Math.max(0, modes.indexOf(mode)));
}

// ---- Figures ----

Chart.defaults.animation = false;
Chart.defaults.maintainAspectRatio = false;
Chart.defaults.color = css('soft');
Chart.defaults.borderColor = css('hair');
Chart.defaults.font.family = getComputedStyle(document.body).fontFamily;
Object.assign(Chart.defaults.plugins.legend, {position: 'bottom', align: 'start'});
Chart.defaults.elements.line.borderWidth = Chart.defaults.elements.point.borderWidth = 2;
Object.assign(Chart.defaults.plugins.legend.labels, {boxWidth: 12, boxHeight: 10, padding: 10});

function figure(parent, {name, width = '', title, about, height, config, notes = []}) {
  const canvas = el('canvas', {role: 'img', ariaLabel: `${title}, ${about}`});
  const points = config.data.datasets.reduce((sum, set) => sum + set.data.length, 0);
  Object.assign(canvas.dataset, {name, points});
  const place = el('div', {className: 'chart'}, canvas);
  place.style.height = height + 'px';
  parent.append(el('figure', {className: width}, el('figcaption', {}, el('b', {}, title), ' ' + about),
                   place, ...notes.map(note => el('p', {className: 'note'}, note))));
  new Chart(canvas, config);
}

// From 0, or logarithmic where small values would vanish.
function valueAxis(text, values, {least = 20, begin = 0} = {}) {
  const positive = values.filter(value => value > 0);
  const title = {display: true, text};
  if (positive.length === 0 || most(positive) < least * Math.min(...positive)) {
    return {type: 'linear', min: begin, title, ticks: {callback: short, maxTicksLimit: 6}};
  }
  const isRound = value => ['1', '2', '5'].includes(value.toExponential()[0]);
  const decades = Math.log10(most(positive) / Math.min(...positive));
  return {
    type: 'logarithmic', title: {display: true, text: text + ', logarithmic'},
    ticks: {callback: value => (decades > 3 ? value.toExponential()[0] === '1' : isRound(value)) ? short(value) : null},
  };
}

const lineStyle = kind => ({
  measured: {borderDash: [], pointStyle: 'circle', pointRadius: 4},
  acted: {borderDash: [], pointStyle: 'circle', pointRadius: 4},
  predicted: {borderDash: [3, 4], pointStyle: 'rectRot', pointRadius: 6},
}[kind]);

// Lines over devices or, in a run with several batches, over the rows of each device.
function againstDevices(run, world, value) {
  const growing = isGrowing(run);
  const x = row => growing ? row.rows_per_device : row.devices;
  const rows = world.rows.filter(row => value(row) !== null);
  const labels = unique(rows.map(x)).sort((a, b) => a - b);
  const lines = new Map();
  for (const row of rows) {
    const kind = unique(world.rows.map(kindOf)).length > 1 ? kindOf(row) : '';
    const label = row.mode + (growing && row.devices > 1 ? ` x${row.devices}` : '') +
        (row.what_if ? ` (${row.what_if})` : '') + (kind ? `, ${kind}` : '');
    if (!lines.has(label)) {
      lines.set(label, {label, mode: row.mode, spanGaps: true, data: labels.map(() => null),
        borderColor: colorOf(row.mode), backgroundColor: colorOf(row.mode), clip: 8, ...lineStyle(row.kind),
        // Beside a prediction, what was measured is dots.
        showLine: row.kind === 'predicted' || !world.rows.some(other => other.kind === 'predicted')});
    }
    lines.get(label).data[labels.indexOf(x(row))] = value(row);
  }
  const all = [...lines.values()];
  all.forEach((line, i) => {  // a colour of its own for each line of one mode and kind
    const twin = all.findIndex(other => other.mode === line.mode && other.pointStyle === line.pointStyle);
    if (twin < i) line.borderColor = line.backgroundColor = css('c' + i % 8);
  });
  return {lines: all, labels, xTitle: growing ? 'rows per device and step' : 'devices', x};
}

const lineLegend = {legend: {labels: {filter: item => item.text !== '', usePointStyle: true, pointStyle: 'line', pointStyleWidth: 26}}};

const lineConfig = (datasets, labels, xTitle, y) => ({
  type: 'line', data: {labels, datasets},
  options: {scales: {x: {title: {display: true, text: xTitle}}, y}, plugins: lineLegend,
    interaction: {mode: 'nearest', intersect: false}},
});

function epochFigure(parent, run, world) {
  const unit = secondsUnit(most(world.rows.map(row => row.median_epoch_seconds ?? 0)));
  const {lines, labels, xTitle} =
      againstDevices(run, world, row => row.median_epoch_seconds === null ? null : row.median_epoch_seconds / unit[0]);
  if (lines.length === 0) return;
  for (const line of lines) {  // the single device as a level that others are seen against
    const known = line.data.filter(value => value !== null);
    if (line.mode !== 'single' || known.length > 1) continue;
    Object.assign(line, {data: labels.map(() => known[0]), pointRadius: 0, borderDash: [6, 4], borderWidth: 1.5});
  }
  figure(parent, {name: 'epoch', title: 'Epoch time', about: `median, ${world.short}`, height: 290,
    config: lineConfig(lines, labels, xTitle,
                       valueAxis(`epoch time (${unit[1]})`, lines.flatMap(line => line.data)))});
}

// A lower and an upper edge around each predicted line, with the space between them filled.
function speedupBands(world, lines, labels, x) {
  const bands = [];
  for (const line of lines) {
    const bandAt = label => label === 1 ? [1, 1] : world.rows.find(row => row.kind === 'predicted' &&
      row.mode === line.mode && row.what_if === '' && x(row) === label)?.speedupBand ?? null;
    const found = labels.map(bandAt);
    if (line.pointStyle !== 'rectRot' || found.filter(Boolean).length < 2) continue;
    const edge = (side, more) => ({label: '', data: found.map(band => band && band[side]), borderWidth: 1,
      borderColor: line.borderColor + '40', pointRadius: 0, pointHitRadius: 0, spanGaps: true,
      backgroundColor: line.borderColor + '26', ...more});
    bands.push(edge(0, {}), edge(1, {fill: '-1', label: bands.length ? '' : 'band: nine of ten published rows'}));
  }
  return bands;
}

function speedupFigure(parent, run, world) {
  const {lines, labels, xTitle, x} = againstDevices(run, world, row => row.speedup);
  const drawn = lines.filter(line => line.mode !== 'single');
  if (drawn.length === 0) return;
  for (const line of drawn) {  // every mode is the single device where it has no row for one
    if (labels[0] === 1 && line.data[0] === null && !isGrowing(run)) line.data[0] = 1;
  }
  const ideal = labels.map(label => {
    const row = world.rows.find(row => x(row) === label && row.ideal_speedup !== null);
    return row ? row.ideal_speedup : null;
  });
  drawn.push(...speedupBands(world, drawn, labels, x));
  drawn.push({label: 'ideal', data: ideal, borderColor: css('faint'), backgroundColor: css('faint'),
    borderDash: [6, 4], borderWidth: 1.5, pointRadius: 0, spanGaps: true});
  figure(parent, {name: 'speedup', title: 'Speed-up', about: world.short,
    height: 290, config: lineConfig(drawn, labels, xTitle,
      valueAxis('speed-up over one device (x)', drawn.flatMap(line => line.data)))});
}

// One row for each way of training: the one with the most devices.
function longest(run, value) {
  const best = new Map();
  for (const row of run.rows.filter(row => value(row).length > 1)) {
    const key = [row.mode, isGrowing(run) ? row.batch : 0, row.what_if].join();
    if (!best.has(key) || row.devices > best.get(key).devices) best.set(key, row);
  }
  return [...best.values()];
}

function curveFigure(parent, {name, title, about, curves, xTitle, yTitle, begin}) {
  const sets = curves.filter(curve => curve.data.length > 0).map((curve, i) => ({
    ...curve, borderColor: colorOf(curve.mode), backgroundColor: colorOf(curve.mode), clip: 8,
    order: -i,  // dashed over solid, since equal trainings have equal curves
    borderDash: [[], [8, 6], [2, 4], [10, 3, 2, 3]][i % 4], pointRadius: curve.data.length > 40 ? 0 : 3,
    ...curve.style}));
  if (sets.length === 0) return;
  const x = {type: 'linear', min: 1, title: {display: true, text: xTitle}, ticks: {precision: 0, maxTicksLimit: 8}};
  figure(parent, {name, title, about, height: 290, config: {type: 'line', data: {datasets: sets},
    options: {scales: {x, y: valueAxis(yTitle, sets.flatMap(set => set.data.map(point => point.y)), {begin})},
      plugins: lineLegend, interaction: {mode: 'nearest', intersect: false}}}});
}

function epochsFigure(parent, row) {
  const unit = secondsUnit(most(row.epoch_seconds));
  const data = row.epoch_seconds.map((time, i) => ({x: i + 1, y: time / unit[0]}));
  const curves = [{label: row.name, mode: row.mode, data}];
  curveFigure(parent, {name: 'epoch', title: 'Epoch time', about: 'epoch by epoch', curves, xTitle: 'epoch',
    yTitle: `epoch time (${unit[1]})`});
}

function lossFigure(parent, run) {
  const points = losses => losses.mean.map(
      (y, i) => ({x: i * losses.steps_per_point + (losses.steps_per_point + 1) / 2, y}));
  const rows = longest(run, row => row.losses.mean);
  const curves = rows.map(row => ({label: row.name, mode: row.mode, data: points(row.losses)}));
  const style = {borderDash: [3, 4], pointStyle: 'rectRot', pointRadius: 6};
  const validated = rows.filter(row => row.validation.length > 0);
  curves.push(...validated.map((row, i) => ({label: `${row.name}, validation`, mode: row.mode,
    data: row.validation.map(({step, loss}) => ({x: step, y: loss})),
    style: {...style, borderColor: css(`c${i + 1}`), backgroundColor: css(`c${i + 1}`)}})));
  const thinned = most(run.rows.map(row => row.losses.steps_per_point));
  curveFigure(parent, {name: 'loss', title: 'Loss', curves, xTitle: 'step', yTitle: 'cross-entropy (nats)',
    about: (thinned > 1 ? `means of ${thinned} steps` : 'of every step') +
      (validated.length ? ', and on the validation text' : '')});
}

function accuracyFigure(parent, run) {
  const curves = longest(run, row => row.epoch_accuracy).map(row => ({label: row.name, mode: row.mode,
    data: row.epoch_accuracy.map((share, i) => ({x: i + 1, y: 100 * share}))}));
  const least = Math.min(...curves.flatMap(curve => curve.data.map(point => point.y)), 100);
  curveFigure(parent, {name: 'accuracy', title: 'Test accuracy', about: 'after each epoch', curves,
    xTitle: 'epoch', yTitle: 'correct (%)', begin: least > 50 ? 10 * Math.floor(least / 10) : 0});
}

// ---- Bars ----

// Writes a text behind each horizontal bar, and draws the band of a prediction over it.
const marks = {
  id: 'marks',
  afterDatasetsDraw(chart, _, {texts = [], ends = [], bands = []}) {
    const {ctx, scales: {x, y}} = chart;
    ctx.save();
    ctx.font = `12px ${Chart.defaults.font.family}`;
    ctx.textBaseline = 'middle';
    ctx.strokeStyle = css('ink');
    texts.forEach((text, i) => {
      ctx.fillStyle = css('ink');
      const end = x.getPixelForValue(Math.max(ends[i], bands[i]?.[1] ?? 0));
      ctx.fillText(text, end + 6, y.getPixelForValue(i));
      if (!bands[i]) return;
      const [a, b] = bands[i].map(value => x.getPixelForValue(value)), at = y.getPixelForValue(i) + 8;
      ctx.beginPath();
      for (const [fromX, fromY, toX, toY] of [[a, at, b, at], [a, at - 3, a, at + 3], [b, at - 3, b, at + 3]]) {
        ctx.moveTo(fromX, fromY);
        ctx.lineTo(toX, toY);
      }
      ctx.stroke();
    });
    ctx.restore();
  },
};

const barConfig = (labels, datasets, x, shown) => ({
  type: 'bar', data: {labels, datasets}, plugins: [marks],
  options: {indexAxis: 'y', layout: {padding: {right: 8 + 7 * most(shown.texts.map(text => text.length))}},
    scales: {x, y: {grid: {display: false}, ticks: {autoSkip: false, crossAlign: 'far'}}}, plugins: {marks: shown}},
});

const barsHeight = (count, legend = 40) => 62 + legend + 34 * count;

const parts = [['forward'], ['backward'], ['optimizer'], ['exposed_comm', 'comm', 'exposed communication'], ['copy'],
  ['wait'], ['data'], ['host'], ['unattributed']].map(([key, color = key, name = key]) => ({key, color, name}));

// Parts in time; of rows of very different lengths in percent, with the times behind the bars.
function breakdownFigure(parent, run, world) {
  const rows = world.rows.filter(row => row.breakdown_seconds);
  if (rows.length === 0) return;
  const unit = secondsUnit(most(rows.map(row => row.step_seconds)));
  const isShare = most(rows.map(row => row.step_seconds)) > 20 * Math.min(...rows.map(row => row.step_seconds));
  const scaled = (row, value) => isShare ? 100 * value / row.step_seconds : value / unit[0];
  const bars = parts.map(({key, color, name}) => ({label: name, backgroundColor: css(color), stack: 'step',
    barThickness: 16, data: rows.map(row => scaled(row, row.breakdown_seconds[key]))})).filter(set => most(set.data) > 0);
  const hidden = rows.map(row => scaled(row, row.overlapped_comm_seconds));
  if (most(hidden) > 0) {
    bars.push({label: 'communication hidden behind computation', backgroundColor: css('comm') + '6b', stack: 'hidden',
      barThickness: 6, data: hidden});
  }
  const banded = !isShare && rows.some(row => row.step_seconds_band);
  const shown = {
    texts: rows.map(row => seconds(row.step_seconds)), ends: rows.map(row => scaled(row, row.step_seconds)),
    bands: rows.map(row => banded && row.step_seconds_band?.map(value => scaled(row, value))),
  };
  const x = {stacked: true, min: 0, suggestedMax: most(shown.bands.map(band => band?.[1] ?? 0)), title: {display: true, text: isShare ? 'share of the step (%)' : `time (${unit[1]})`}};
  const config = barConfig(rows.map(row => labelOf(run, world, row)), bars, x, shown);
  config.options.scales.y.stacked = true;
  const notes = banded ? ['The thin line with ends is the band of a prediction: nine of ten published rows like it lie inside.'] : [];
  if (rows.some(row => row.band_verified === false)) {
    notes.push('Rows without one are not verified: no published row is like them.');
  }
  figure(parent, {name: 'breakdown', width: 'half', title: "Where a step's time goes",
    about: `in rank 0's median step, ${world.short}`, height: barsHeight(rows.length, 64), config, notes});
}

function memoryFigure(parent, run, world) {
  const rows = world.rows.filter(row => row.peak_bytes.length > 0);
  if (rows.length === 0) return;
  const peaks = rows.map(row => most(row.peak_bytes)), least = rows.map(row => Math.min(...row.peak_bytes));
  const unit = bytesUnit(most(peaks));
  const isUneven = peaks.some((bytes, i) => bytes > 1.05 * least[i]);
  const set = (label, values, alpha) => ({label, data: values.map(bytes => bytes / unit[0]), barThickness: isUneven ? 8 : 14,
    backgroundColor: rows.map(row => colorOf(row.mode) + alpha)});
  const sets = [set(isUneven ? 'device that holds most' : 'each device', peaks, '')];
  if (isUneven) sets.push(set('device that holds least', least, '80'));
  const shown = {texts: peaks.map(bytes => inUnit(bytes, unit)), ends: peaks.map(bytes => bytes / unit[0])};
  const config = barConfig(rows.map(row => labelOf(run, world, row)), sets,
                           valueAxis(`peak memory (${unit[1]})`, peaks.map(bytes => bytes / unit[0])), shown);
  config.options.plugins.legend = {display: isUneven, labels: {generateLabels: chart =>
    Chart.defaults.plugins.legend.labels.generateLabels(chart).map((label, i) => ({...label,
      fillStyle: css('faint') + (i ? '80' : ''), strokeStyle: 'transparent'}))}};
  figure(parent, {name: 'memory', width: 'half', title: 'Memory', about: 'most in use on a device', config,
    height: barsHeight(rows.length, isUneven ? 64 : 0)});
}

const memoryParts = [['parameters', 'backward'], ['gradients', 'forward'], ['optimizer', 'optimizer'],
  ['activations', 'comm'], ['buckets', 'copy'], ['workspace', 'wait']];

function memoryPartsFigure(parent, run, world) {
  const rows = world.rows.filter(row => row.memory_bytes);
  if (rows.length === 0) return;
  const total = row => Object.values(row.memory_bytes).reduce((sum, bytes) => sum + bytes, 0);
  const unit = bytesUnit(most(rows.map(total)));
  const bars = memoryParts.map(([key, color]) => ({label: key, backgroundColor: css(color), barThickness: 16,
    data: rows.map(row => row.memory_bytes[key] / unit[0])})).filter(set => most(set.data) > 0);
  const shown = {texts: rows.map(row => inUnit(total(row), unit)), ends: rows.map(row => total(row) / unit[0])};
  const x = {stacked: true, min: 0, title: {display: true, text: `memory (${unit[1]})`}};
  const config = barConfig(rows.map(row => labelOf(run, world, row)), bars, x, shown);
  config.options.scales.y.stacked = true;
  figure(parent, {name: 'memory-parts', width: 'half', title: 'Memory', about: 'of the device that needs most, predicted',
    height: barsHeight(rows.length, 64), config, notes: rows.some(row => row.memory_bytes.activations > 0) ? []
      : ['Without activations, which are not known for this net.']});
}

// ---- One step, device by device ----

function partOf(category) {
  if (category === 'communication') return parts[3];
  if (category === 'hidden communication') return {color: 'comm', alpha: '6b', name: 'communication hidden behind computation'};
  return parts.find(part => part.key === category) ?? parts[8];
}

// Numbers the buckets, each in its widest piece.
const bucketNumbers = {
  id: 'bucketNumbers',
  afterDatasetsDraw(chart) {
    const {ctx} = chart, widest = new Map();
    chart.data.datasets.forEach((set, i) => chart.getDatasetMeta(i).data.forEach((bar, k) => {
      const {y: lane, bucket} = set.data[k], width = Math.abs(bar.x - bar.base), key = lane + bucket;
      if (bucket >= 0 && width > (widest.get(key)?.width ?? 9)) widest.set(key, {width, bar, bucket});
    }));
    ctx.save();
    Object.assign(ctx, {font: `600 11px ${Chart.defaults.font.family}`, textAlign: 'center', textBaseline: 'middle',
      fillStyle: css('ink')});
    for (const {bar, bucket} of widest.values()) ctx.fillText(bucket, (bar.x + bar.base) / 2, bar.y + 0.5);
    ctx.restore();
  },
};

function lanesFigure(parent, timeline, ranks, about, notes) {
  const unit = secondsUnit(timeline.seconds), lanes = [], sets = new Map();
  for (const rank of ranks) {
    lanes.push({key: rank.name, label: rank.name});
    for (const lane of rank.lanes) {
      const key = `${rank.name}\n${lane.name}`;
      lanes.push({key, label: lane.name});
      for (const [begin, end, category, name, bucket] of lane.spans) {
        const {color, alpha = '', name: label} = partOf(category);
        if (!sets.has(label)) {
          sets.set(label, {label, data: [], backgroundColor: css(color) + alpha, barThickness: 15, grouped: false});
        }
        sets.get(label).data.push({x: [begin / unit[0], end / unit[0]], y: key, name, bucket});
      }
    }
  }
  figure(parent, {name: 'timeline', width: 'full', title: 'One step, device by device', about, notes,
    height: 100 + 24 * lanes.length, config: {
      type: 'bar', data: {labels: lanes.map(lane => lane.key), datasets: [...sets.values()]}, plugins: [bucketNumbers],
      options: {indexAxis: 'y', scales: {
        x: {min: 0, max: timeline.seconds / unit[0], title: {display: true, text: `time since the step began (${unit[1]})`},
          ticks: {callback: short}},
        y: {grid: {display: false}, ticks: {autoSkip: false, crossAlign: 'far', callback: i => lanes[i].label}},
      }, plugins: {tooltip: {callbacks: {title: () => '', label: ({raw}) =>
        `${raw.name}${raw.bucket >= 0 ? ` of bucket ${raw.bucket}` : ''}: ${inUnit((raw.x[1] - raw.x[0]) * unit[0], unit)}`}}}},
    }});
}

function timelineFigures(parent, run) {
  const {timeline} = run;
  if (!timeline) return;
  const drawn = timeline.ranks.slice(0, 2), others = timeline.ranks.slice(2);
  const row = timeline.row || `${plural(timeline.ranks.length, 'device')}; the run file has no such row`;
  const hasBuckets = drawn.some(rank => rank.lanes.some(lane => lane.spans.some(span => span[4] >= 0)));
  const notes = hasBuckets
      ? ['Numbers are gradient buckets, in the order in which they are reduced: bucket 0 holds the last layers, ' +
         'whose gradients are ready first.'] : [];
  // Ranks begin a step one after another, so all of them together take longer than one.
  const all = timeline.seconds > 1.02 * timeline.own_seconds
      ? `, of all ranks from the first begin to the last end ${seconds(timeline.seconds)}` : '';
  lanesFigure(parent, timeline, drawn, timeline.predicted ? row
      : `${row}; step ${timeline.step}, ${drawn[0].name}'s median: ${seconds(timeline.own_seconds)}${all}`, notes);
  if (others.length === 0) return;
  const more = el('details', {}, el('summary', {}, plural(others.length, 'more device')));
  const place = el('div', {className: 'figures'});
  more.append(place);
  more.addEventListener('toggle', () => lanesFigure(place, timeline, others, row, []), {once: true});
  parent.append(el('figure', {className: 'full'}, more));
}

// ---- A run ----

function folded(title, ...children) {
  return el('details', {}, el('summary', {}, title), ...children);
}

function rowTable(run) {
  const unit = values => bytesUnit(most(values));
  const sent = unit(run.rows.map(row => row.comm_bytes_per_device_per_step));
  const peak = unit(run.rows.map(row => most(row.peak_bytes)));
  const mean = values => values.reduce((sum, value) => sum + value, 0) / values.length;
  const known = (value, text) => value === null || value === undefined ? '' : text(value);
  const factor = value => `${value.toFixed(2)}x`;
  const columns = [
    ['mode', row => row.mode + (row.contended ? '*' : '')],
    ['kind', row => kindOf(row) + (row.kind === 'acted' && row.slow_motion !== 1 ? ` 1 : ${short(row.slow_motion)}` : '')],
    ['what if', row => row.what_if], ['devices', row => row.devices], ['batch', row => row.batch],
    ['epoch', row => known(row.median_epoch_seconds, seconds)], ['step', row => seconds(row.step_seconds)],
    ['step, band', row => known(row.step_seconds_band, band => `${seconds(band[0])} to ${seconds(band[1])}`)],
    ['speed-up', row => known(row.speedup, factor)], ['ideal', row => known(row.ideal_speedup, factor)],
    ['efficiency', row => known(row.efficiency, value => percent(shownEfficiency(value)))],
    ['busy', row => row.busy_fraction.length ? percent(mean(row.busy_fraction)) : ''],
    ['exposed comm.', row => known(row.breakdown_seconds, all => seconds(all.exposed_comm))],
    ['sent per step', row => row.comm_bytes_per_device_per_step ? inUnit(row.comm_bytes_per_device_per_step, sent) : '0'],
    ['peak memory', row => row.peak_bytes.length ? inUnit(most(row.peak_bytes), peak) : ''],
    ['memory beside steps', ({peak_bytes_beside_steps: all}) => all.length ? inUnit(most(all), peak) : ''],
    ['loss', row => known(row.final_loss, short)],
    ['validation loss', row => known(row.validation.at(-1)?.loss, short)],
    ['accuracy', row => known(row.test_accuracy, value => percent(value, 1))],
    ['verdict', row => known(row.equal, equal => equal ? 'equal' : 'WRONG')],
  ].filter(([, text]) => run.rows.some(row => text(row) !== ''));
  const head = el('tr', {}, ...columns.map(([name]) => el('th', {}, name)));
  const body = run.rows.map(row => el('tr', {className: row.kind}, ...columns.map(([, text]) => el('td', {}, String(text(row))))));
  return el('div', {className: 'scroll'}, el('table', {}, el('thead', {}, head), el('tbody', {}, ...body)));
}

// One device's step beside the judged row's; the last column adds up to its distance from the ideal.
function partTable(run) {
  const parts = run.parts.filter(part => part.one > 0 || part.row > 0);
  const sum = key => parts.reduce((total, part) => total + part[key], 0);
  const rows = [...parts, {name: 'step', one: sum('one'), share: sum('share'), row: sum('row')}];
  const more = ({row, share}) => (row < share ? '-' : '') + seconds(Math.abs(row - share));
  const head = ['part', 'one device', 'ideal share', run.rows[run.judged].name, 'more'];
  const body = rows.map(part => [part.name, seconds(part.one), seconds(part.share), seconds(part.row), more(part)]);
  return el('div', {className: 'scroll'}, el('table', {},
    el('thead', {}, el('tr', {}, ...head.map(name => el('th', {}, name)))),
    el('tbody', {}, ...body.map(cells => el('tr', {}, ...cells.map(cell => el('td', {}, cell)))))));
}

const flagText = value => typeof value === 'string' ? value : JSON.stringify(value);

function origin(run) {
  const host = run.file.host ?? {}, flags = Object.entries(run.file.config ?? {});
  const machine = [host.cpu, plural(host.cores ?? 1, 'core'), `${short((host.memory_bytes ?? 0) / 2 ** 30)} GiB`,
    ...(host.gpus ?? []).map(gpu => gpu.name), host.os, `Lockstep ${host.version}, ${host.build}`];
  const unset = flags.filter(([, value]) => value === null).map(([flag]) => flag);
  return [el('p', {className: 'note'}, machine.filter(Boolean).join(' · ')), el('pre', {}, run.command),
    el('dl', {className: 'config'}, ...flags.filter(([, value]) => value !== null).map(
        ([flag, value]) => el('div', {}, el('dt', {}, flag), el('dd', {}, flagText(value))))),
    unset.length ? el('p', {className: 'note'}, `Not in force: ${unset.join(', ')}.`) : null];
}

function about(run) {
  const set = run.file.config ?? {};
  const text = [`${set.model ?? '?'} on ${set.dataset ?? '?'}`];
  if (set.batch && !isGrowing(run)) text.push(`batch ${set.batch}`);
  if (set.epochs) text.push(plural(Number(set.epochs), 'epoch'));
  const judged = run.rows[run.judged];
  return `${judged.name}${judged.kind === 'measured' ? '' : ', ' + kindOf(judged)} · ${text.join(', ')} · ` +
      (run.file.date ?? '').replace('T', ' ').replace(/:\d\dZ$/, ' UTC');
}

function drawRun(parent, run) {
  parent.append(el('p', {className: 'headline'}, run.headline), el('p', {className: 'soft'}, about(run)));
  if (run.interrupted) parent.append(el('p', {className: 'note'}, `This run was ${run.interrupted}.`));
  const worlds = worldsOf(run);
  for (const world of worlds) {
    if (worlds.length > 1) parent.append(el('h3', {}, world.title));
    const figures = el('div', {className: 'figures'});
    parent.append(figures);
    if (unique(world.rows.map(row => row.devices)).length > 1 || isGrowing(run)) {
      speedupFigure(figures, run, world);
      epochFigure(figures, run, world);
    } else if (world.rows.length === 1 && world.rows[0].epoch_seconds.length > 0) {
      epochsFigure(figures, world.rows[0]);
    }
    if (world === worlds[0]) {
      lossFigure(figures, run);
      accuracyFigure(figures, run);
    }
    figures.style.setProperty('--span', 12 / Math.max(2, figures.children.length));
    breakdownFigure(figures, run, world);
    memoryFigure(figures, run, world);
    memoryPartsFigure(figures, run, world);
  }
  const figures = el('div', {className: 'figures'});
  parent.append(figures);
  timelineFigures(figures, run);
  const notes = [...run.missing];
  if (run.rows.some(row => row.contended)) {
    notes.push('* contended: another process was at work meanwhile, so times may be too long.');
  }
  parent.append(...notes.map(note => el('p', {className: 'note'}, note)));
  parent.append(folded('In words: what limits it, and what is fastest', el('div', {className: 'answers'}, ...run.answers.map(
      ({title, text}) => el('div', {}, el('b', {}, title), el('p', {className: 'soft'}, text))))));
  if (run.parts) parent.append(folded(`One device's step and ${run.rows[run.judged].name}'s, part by part`, partTable(run)));
  parent.append(folded('Every row as a table', rowTable(run)), folded('Machine, command and flags', ...origin(run)));
}

// ---- Several runs ----

function overview(parent) {
  const cell = (text, className = '') => el('td', {className}, text);
  const body = runs.map((run, i) => {
    const row = run.rows[run.judged];
    return el('tr', {}, el('td', {}, el('a', {href: `#run-${i + 1}`}, run.name)), cell(run.headline, 'text'),
      cell(row.name), cell(seconds(row.step_seconds)), cell(row.speedup === null ? '' : `${row.speedup.toFixed(2)}x`),
      cell(row.efficiency === null ? '' : percent(shownEfficiency(row.efficiency))));
  });
  const head = ['run', 'in a sentence', 'row', 'step', 'speed-up', 'efficiency'].map(
      (name, i) => el('th', {className: i === 1 ? 'text' : ''}, name));
  parent.append(el('div', {className: 'scroll'},
                   el('table', {}, el('thead', {}, el('tr', {}, ...head)), el('tbody', {}, ...body))));
  const figures = el('div', {className: 'figures'});
  parent.append(figures);
  for (const [title, isOfWorld] of [['measured on a CPU', row => row.cpu], ['GPUs and simulated GPUs', row => !row.cpu]]) {
    const found = runs.map(run => ({run, row: run.rows[run.judged]}))
        .filter(({row}) => isOfWorld(row) && row.speedup !== null && row.mode !== 'single');
    if (found.length < 2) continue;
    const values = found.map(({row}) => row.speedup);
    const sets = [{label: 'speed-up', data: values, barThickness: 14,
      backgroundColor: found.map(({row}) => colorOf(row.mode))}];
    const config = barConfig(found.map(({run, row}) => [run.name.slice(-28), row.name]), sets,
      valueAxis('speed-up over one device (x)', values), {texts: values.map(value => `${value.toFixed(2)}x`), ends: values});
    config.options.plugins.legend = {display: false};
    figure(figures, {name: 'speedups', width: 'half', title: 'Speed-up of each run', about: title, config,
      height: barsHeight(found.length, 0)});
  }
}

function drawAll() {
  const page = document.getElementById('page');
  document.title = runs.length === 1 ? `Lockstep: ${runs[0].name}` : `Lockstep: ${runs.length} runs`;
  page.append(el('h1', {}, runs.length === 1 ? runs[0].name : plural(runs.length, 'run')));
  if (runs.length === 1) return drawRun(page, runs[0]);
  overview(page);
  const mostOpen = 6;
  runs.forEach((run, i) => {
    if (runs.length <= mostOpen) {
      const section = el('section', {id: `run-${i + 1}`}, el('h2', {}, run.name));
      page.append(section);
      return drawRun(section, run);
    }
    const place = el('div');
    const details = el('details', {className: 'run', id: `run-${i + 1}`}, el('summary', {}, run.name), place);
    details.addEventListener('toggle', () => drawRun(place, run), {once: true});
    page.append(details);
  });
}

const runs = JSON.parse(document.getElementById('runs').textContent).map(readRun);
drawAll();
document.documentElement.dataset.drawn = document.querySelectorAll('canvas').length;
matchMedia('(prefers-color-scheme: dark)').addEventListener('change', () => location.reload());
