// Plays recorded steps. It uses no library: a moment changes a few dozen attributes of elements that are made once, and
// only what flies moves between moments, by transforms. (D3 would be two thirds of the page and do none of that.)
// Every text of a recording goes through textContent, so none of it is ever markup.
'use strict';

const el = (tag, attributes = {}, ...children) => {
  const element = Object.assign(document.createElement(tag), attributes);
  element.append(...children.filter(child => child !== null));
  return element;
};
const byId = id => document.getElementById(id);
const css = name => getComputedStyle(document.documentElement).getPropertyValue('--' + name).trim();
const short = value => String(value >= 100 ? Math.round(value) : Number(value.toPrecision(3)));
const bytes = n => n < 1024 ? `${n} B` : n < 2 ** 20 ? `${short(n / 1024)} KiB` : `${short(n / 2 ** 20)} MiB`;
const time = us => us < 1e3 ? `${short(us)} µs` : us < 1e6 ? `${short(us / 1e3)} ms` : `${short(us / 1e6)} s`;
const number = value => value === null ? 'NaN' : value.toFixed(3).replace('-', '−').padStart(6, '\u2007');
const sum = values => values.reduce((total, value) => total + value, 0);

const phaseNames = ['data', 'forward', 'backward', 'update', 'end'];
const phaseColors = ['data', 'forward', 'backward', 'optimizer', 'held'];
const colorOf = {rows: 'data', scatter: 'data', replicate: 'comm', forward: 'forward', loss: 'forward', gather: 'comm',
  backward: 'backward', gradient: 'backward', reduce: 'comm', call: 'comm', arrive: 'comm', done: 'comm', message: 'comm',
  freed: 'held', update: 'optimizer', end: 'optimizer'};
const isStill = matchMedia('(prefers-reduced-motion: reduce)').matches;

// Sets a property only if it changes: most do not from one moment to the next.
function put(element, key, value) {
  const known = element.known ??= {};
  if (known[key] === value) return;
  known[key] = value;
  if (key === 'text') element.textContent = value;
  else if (key === 'class') element.className = value;
  else if (key.startsWith('--')) element.style.setProperty(key, value);
  else if (value === null) element.removeAttribute(key);
  else element.setAttribute(key, value);
}

// ---- A recording, and its state at a moment ----

function read(recording, list) {
  const rec = {...recording, place: new Map(recording.ranks.map(({rank}, i) => [rank, i]))};
  const texts = [...list.querySelectorAll('li')].map(item => item.querySelector('b').textContent);
  rec.moments = recording.moments.map(([kind, phase, us, collective, reason, events], i) =>
    ({kind, phase, us, collective, events, text: texts[i], reason: recording.reasons[reason]}));
  // DataParallel's copies have the parameters of device 0.
  rec.ranks.forEach(rank => {
    rank.own = rank.parameters.length > 0;
    if (!rank.own) rank.parameters = rec.ranks[0].parameters;
    rank.cells = [];
  });
  for (const moment of rec.moments) {
    if (moment.kind !== 'forward' && moment.kind !== 'loss') continue;
    for (const [rank, cell] of cellsOf(rec, moment)) rec.ranks[rank].cells.push(cell);
  }
  return rec;
}

// The activations that a forward moment leaves behind on each rank: {operations, name, bytes}.
function cellsOf(rec, moment) {
  const cells = new Map();
  for (const [rank, operation] of moment.events) {
    const r = rec.place.get(rank), [name, size] = rec.ranks[r].operations[operation];
    if (!cells.has(r)) cells.set(r, {operations: [], name, bytes: 0});
    cells.get(r).operations.push(operation);
    cells.get(r).bytes += size;
  }
  return cells;
}

const startOf = rec => ({
  sent: rec.ranks.map(() => 0),
  ranks: rec.ranks.map((rank, r) => ({
    rows: null, acts: rank.cells.map(() => false), backward: 0, grads: rank.parameters.map(() => 0),
    params: rank.parameters.map(() => rank.own ? (rec.sharded ? 1 / rec.ranks.length : 1) : 0), fresh: rank.parameters.map(() => false),
    buckets: rec.collectives.map(() => ''), held: rec.collectives.map(c => c.cuts.slice(1).map(() => 1 << r)),
    values: rec.collectives.map(() => null), gradients: {}, doing: ''})),
});

const segmentsIn = (collective, offset, count) => collective.cuts.slice(0, -1).map((cut, i) => [cut, i])
    .filter(([cut]) => cut >= offset && cut < offset + count).map(([, i]) => i);

const apply = {
  rows(rec, state, {events}) {
    for (const [rank, first, count] of events) state.ranks[rec.place.get(rank)].rows = [first, count];
  },
  scatter(rec, state, {events}) {
    const all = state.ranks[0].rows ?? [0, 1], each = sum(events.map(event => event[3])) / all[1];
    for (const [to, , offset, count] of events) state.ranks[rec.place.get(to)].rows = [offset / each, count / each];
    countSent(rec, state, events);
  },
  replicate(rec, state, {events}) {
    for (const [to] of events) state.ranks[rec.place.get(to)].params.fill(1);
    countSent(rec, state, events);
  },
  forward(rec, state, {events}) {
    for (const [rank, operation] of events) {
      const r = rec.place.get(rank);
      state.ranks[r].acts[rec.ranks[r].cells.findIndex(cell => cell.operations.includes(operation))] = true;
    }
  },
  loss(...all) { apply.forward(...all); },
  gather(rec, state, {events}) { countSent(rec, state, events); },
  backward(rec, state, {events}) {
    for (const [rank, operation] of events) {
      const r = rec.place.get(rank), mine = state.ranks[r];
      if (operation < 0) {  // a stage's pass has its gradients in it
        mine.grads[-1 - operation] = 1;
        continue;
      }
      mine.acts[rec.ranks[r].cells.findIndex(cell => cell.operations.includes(operation))] = false;
      ++mine.backward;
      // The engine does not tell of the copies' gradients: they are there when their layer's backward has begun.
      if (!rec.ranks[r].own) fillFromBehind(mine.grads, mine.backward / rec.ranks[r].operations.length);
    }
  },
  gradient(rec, state, {events}) {
    for (const [rank, parameter, values] of events) {
      const mine = state.ranks[rec.place.get(rank)];
      mine.grads[parameter] = 1;
      if (values) mine.gradients[parameter] = values;
    }
  },
  reduce(rec, state, {events}) {
    countSent(rec, state, events);
    state.ranks.forEach((mine, r) => { if (!rec.ranks[r].own) mine.grads.fill(0); });
  },
  call(rec, state, {events, collective}) {
    if (collective < 0) return;
    for (const [rank, values] of events) {
      const mine = state.ranks[rec.place.get(rank)];
      mine.buckets[collective] = 'flying';
      if (values) mine.values[collective] = [...values];
    }
  },
  arrive(rec, state, {events, collective}) {
    countSent(rec, state, events);
    if (collective < 0) return;
    const before = state.ranks.map(mine => [...mine.held[collective]]);
    for (const [to, from, offset, count, , adds, values] of events) {
      const mine = state.ranks[rec.place.get(to)];
      for (const i of segmentsIn(rec.collectives[collective], offset, count)) {
        mine.held[collective][i] = from.reduce((parts, f) => parts | before[rec.place.get(f)][i], adds ? mine.held[collective][i] : 0);
      }
      if (values && mine.values[collective]) mine.values[collective].splice(offset, count, ...values);
    }
  },
  done(rec, state, {events, collective}) {
    if (collective < 0) return;
    const {of, parameters, operation} = rec.collectives[collective];
    for (const [rank] of events) {
      const mine = state.ranks[rec.place.get(rank)];
      mine.buckets[collective] = operation === 'reduce_scatter' ? 'done part' : 'done';
      if (of === 'parameters') for (const i of parameters) mine.params[i] = 1;
    }
  },
  freed(rec, state, {events}) {
    for (const [rank, collective] of events) {
      if (collective < 0) continue;
      const {of, parameters} = rec.collectives[collective], mine = state.ranks[rec.place.get(rank)];
      for (const i of parameters) mine[of === 'gradients' ? 'grads' : 'params'][i] = 1 / rec.ranks.length;
    }
  },
  message(rec, state, {events}) {
    for (const [rank, what, , size] of events) if (what === 'send') state.sent[rec.place.get(rank)] += size;
  },
  update(rec, state, {events}) {
    for (const [rank, parameter] of events) {
      const mine = state.ranks[rec.place.get(rank)], isOne = parameter !== undefined;
      for (const i of isOne ? [parameter] : mine.fresh.keys()) {
        mine.fresh[i] = true;
        if (rec.sharded) mine.params[i] = 1 / rec.ranks.length;
        if (isOne) mine.grads[i] = 0;
      }
      if (!isOne) mine.acts.fill(false);
    }
  },
  end(rec, state) {
    state.ranks.forEach((mine, r) => { if (!rec.ranks[r].own) mine.params.fill(0); });
  },
};

const fillFromBehind = (cells, share) => cells.forEach((_, i) => {
  cells[i] = Math.min(1, Math.max(0, share * cells.length - (cells.length - 1 - i)));
});

function countSent(rec, state, events) {
  for (const [to, from, , , size] of events) {
    for (const f of from) if (f !== to) state.sent[rec.place.get(f)] += size;
  }
}

// {from, to, offset, count, bytes} of what travels in a moment.
function flightsOf(rec, {kind, events}) {
  if (kind === 'message') {
    const [rank, what, peer, size] = events[0];
    const [from, to] = what === 'send' ? [rank, peer] : [peer, rank];
    return [{from, to, size}];
  }
  if (kind === 'gradient') return rec.style === 'pipeline' ? [] : events.map(([rank, parameter]) => ({from: rank, to: rank, parameter}));
  if (kind === 'rows') return events.map(([to, first, count]) => ({from: null, to, first, count}));
  if (!['scatter', 'replicate', 'gather', 'reduce', 'arrive'].includes(kind)) return [];
  const pairs = new Map();
  for (const [to, from, offset, count, size] of events) {
    for (const f of from) {
      if (f === to) continue;
      const key = kind === 'arrive' ? `${f} ${to} ${offset}` : `${f} ${to}`;
      if (pairs.has(key)) pairs.get(key).size += size;
      else pairs.set(key, {from: f, to, offset, count, size});
    }
  }
  return [...pairs.values()];
}

// ---- The stage ----

class Player {
  constructor(rec, quotes, parent) {
    Object.assign(this, {rec, quotes, at: -1, state: null, tokens: []});
    this.sentence = el('p', {className: 'sentence', ariaLive: 'polite'});
    this.reason = el('p', {className: 'reason'});
    this.stage = el('div', {className: 'stage'});
    this.codePlace = el('p');
    this.code = el('pre', {tabIndex: 0, ariaLabel: 'The lines of the engine that do it'});
    this.figures = el('p', {className: 'figures'});
    this.numbers = el('div', {className: 'numbers', hidden: !rec.numbers});
    this.canvas = el('canvas', {role: 'img', ariaLabel: 'What each ' + rec.noun + ' did, over time'});
    this.cursor = el('div', {className: 'cursor'});
    this.lanes = el('div', {className: 'lanes'}, this.canvas, this.cursor);
    const legend = el('p', {}, ...[['forward', 'forward'], ['backward', 'backward'], ['comm', 'communication'],
      ['optimizer', 'update'], ...(rec.schedule ? [] : [['wait', 'waiting']])].map(([color, name]) => {
      const box = el('i');
      box.style.background = `var(--${color})`;
      return el('span', {}, box, name);
    }), el('span', {}, rec.lanes.flat(2).length ? `the whole step: ${time(rec.us)}; click to go there` : 'no times were recorded: the training was too long'));
    this.root = el('section', {className: rec.schedule ? 'player schedule' : 'player', ariaLabel: rec.title}, el('h2', {}, rec.title), el('p', {className: 'about', title: rec.about}, rec.about),
      el('div', {className: 'tell'}, this.sentence, this.reason), this.stage,
      el('div', {className: 'beside'}, el('div', {className: 'code'}, this.codePlace, this.code),
        el('div', {}, this.figures, el('div', {className: 'map'}, legend, this.lanes))),
      this.numbers);
    this.makeStage();
    parent.append(this.root);
    this.lanes.addEventListener('click', event => this.onPick?.(this.momentAt(event)));
    this.lanes.addEventListener('mousemove', event => this.lanes.title = this.pieceAt(event));
  }

  makeStage() {
    const {rec} = this, total = Math.max(...rec.moments.filter(({kind}) => kind === 'rows')
        .flatMap(({events}) => events.map(([, first, count]) => first + count)), 0);
    this.total = total;
    const ticks = Math.min(total, 64);
    this.ticks = Array.from({length: ticks}, () => el('i'));
    this.batch = el('div', {className: 'batch', ariaHidden: true}, el('span', {}, total ? `batch: ${total} rows` : ''), ...this.ticks);
    const n = rec.ranks.length;
    this.cardsBox = el('div', {className: 'cards'});
    this.columns = n > 4 ? 4 : n;
    this.stage.classList.toggle('busy-stage', n > 4);
    this.cards = rec.ranks.map((rank, r) => this.makeCard(rank, r));
    this.cardsBox.append(...this.cards.map(card => card.root));
    this.svg = document.createElementNS('http://www.w3.org/2000/svg', 'svg');
    this.svg.setAttribute('class', 'flights');
    this.svg.setAttribute('aria-hidden', 'true');
    this.stage.append(this.batch, this.cardsBox, this.svg);
  }

  makeCard(rank, r) {
    const {rec} = this, cell = (name, size, least = 14) => {
      const box = el('div', {className: 'cell', title: `${name}: ${bytes(size)}`}, el('span', {}, name));
      box.style.flex = `${Math.sqrt(size)} 1 0`;
      box.dataset.least = least;
      return box;
    };
    const shelf = (name, className, size, ...content) => {
      const total = el('b', {}, size);
      return {total, bar: content, root: el('div', {className: 'shelf ' + className},
        el('p', {}, el('span', {}, name), total), el('div', {className: content.length > 24 ? 'bar many' : 'bar'}, ...content))};
    };
    const sizes = rank.parameters.map(parameter => parameter[1]);
    const few = rank.parameters.length <= 8;
    const params = rank.parameters.map(([name, size]) => cell(few ? name : '', size));
    const acts = rank.cells.map(({name, bytes: size}) => cell(rank.cells.length <= 5 ? name : '', size));
    const grads = rank.parameters.map(([name, size]) => cell(few ? name : '', size));
    // Buckets in the order in which they are sent; gradients of none stand behind them.
    const inBucket = new Set(), frames = [];
    rec.collectives.forEach((collective, c) => {
      const places = collective.parameters.filter(i => !inBucket.has(i) && i < grads.length);
      if (collective.of !== 'gradients' || places.length === 0) return;
      places.forEach(i => inBucket.add(i));
      const levels = collective.cuts.slice(1).map((cut, i) => {
        const part = el('i');
        part.style.flex = `${cut - collective.cuts[i]} 1 0`;
        return part;
      });
      const box = el('div', {className: 'bucket', title: collective.label}, ...[...places].sort((a, b) => b - a).map(i => grads[i]),
        el('div', {className: 'levels'}, ...levels));
      box.style.flex = `${sum(places.map(i => Math.sqrt(sizes[i])))} 1 0`;
      frames.push({c, box, levels, places});
    });
    const rest = grads.filter((_, i) => !inBucket.has(i));
    const card = {
      params, acts, grads, frames, doing: el('span', {className: 'doing'}), rows: el('b'), sent: el('span'), hash: el('b'),
      memory: el('span'),
      shelves: {
        params: shelf('Parameters', 'params', '', ...params),
        acts: shelf('Activations', 'acts', '', ...acts),
        grads: shelf('Gradients', 'gradients', '', ...frames.map(frame => frame.box), ...rest),
        state: shelf('Optimizer state', 'state', rank.state ? bytes(rank.state) : 'none', cell('', Math.max(rank.state, 1))),
      },
    };
    card.state = card.shelves.state.bar[0];
    card.root = el('div', {className: 'card'},
      el('header', {}, el('b', {}, `${rec.noun} ${rank.rank}`), card.doing),
      ...Object.values(card.shelves).map(({root}) => root),
      el('div', {className: 'foot'}, card.memory, card.hash));
    return card;
  }

  // The spot of a chunk on a card, relative to the stage: the middle of its part of the bucket or shelf.
  spot(r, kind, flight, collective) {
    const card = this.cards[r], info = this.rec.collectives[collective];
    let box = card.root, from = 0, to = 1;
    const shelf = {scatter: 'params', rows: 'params', replicate: 'params', gather: 'acts', reduce: 'grads', message: 'acts'}[kind] ??
        {parameters: 'params', other: 'acts'}[info?.of];
    if (shelf) box = card.shelves[shelf].root.lastChild;
    if (kind === 'rows' || kind === 'scatter') box = card.root.firstChild;
    if (info) {
      const frame = card.frames.find(({c, places}) => c === collective || places.some(i => info.parameters.includes(i)));
      if (info.of === 'gradients' && frame) box = frame.box;
      if (flight.count) {
        from = flight.offset / info.elements;
        to = (flight.offset + flight.count) / info.elements;
      }
    }
    let rect = this.rectOf(box);
    if (info?.of === 'parameters' && info.parameters.length) {
      const cells = info.parameters.map(i => this.rectOf(card.params[i])), x = Math.min(...cells.map(cell => cell.x));
      rect = {...cells[0], x, w: Math.max(...cells.map(cell => cell.x + cell.w)) - x};
    }
    return {x: rect.x + rect.w * (from + to) / 2, y: rect.y + rect.h / 2, w: Math.max(12, Math.min(rect.w * (to - from), 90))};
  }

  rectOf(box) {
    let rect = this.rects.get(box);
    if (!rect) {
      const own = box.getBoundingClientRect(), stage = this.stageRect ??= this.stage.getBoundingClientRect();
      rect = {x: own.left - stage.left, y: own.top - stage.top, w: own.width, h: own.height};
      this.rects.set(box, rect);
    }
    return rect;
  }

  forget() { this.rects = new Map(); this.stageRect = null; }

  // Goes to a moment; from the one before it, what travels is seen to travel.
  show(at, isAnimated) {
    if (at === this.at) return;
    const isNext = at === this.at + 1;
    const {rec} = this, moment = rec.moments[at];
    if (!isNext || !this.state) this.state = startOf(rec);
    for (let i = isNext && this.at >= 0 ? at : 0; i <= at; ++i) apply[rec.moments[i].kind](rec, this.state, rec.moments[i]);
    this.at = at;
    this.drawCards(moment, isNext && at > 0);
    this.drawWords(moment);
    this.drawNumbers(moment);
    this.cursor.style.transform = `translateX(${this.laneX(moment.us)}px)`;
    this.launch(moment, isAnimated && isNext && at > 0);
  }

  // isStep: the moment before is drawn, so only this one's collective has other levels.
  drawCards(moment, isStep) {
    const {rec, state} = this, n = rec.ranks.length, isEnd = moment.kind === 'end';
    const color = `var(--${colorOf[moment.kind]})`;
    put(this.root, '--now', color);
    const acting = new Map();
    for (const [rank, from] of moment.events) {
      acting.set(rank, true);
      if (Array.isArray(from)) from.forEach(f => acting.set(f, true));
    }
    const taken = state.ranks.some(mine => mine.rows);
    this.ticks.forEach(tick => put(tick, 'class', taken && (rec.style !== 'dp' || state.ranks[n - 1].rows) ? 'gone' : ''));
    const equal = new Set(rec.ranks.map(rank => rank.hash)).size === 1;
    this.cards.forEach((card, r) => {
      const mine = state.ranks[r], rank = rec.ranks[r];
      const isBusy = acting.has(rank.rank) && !isEnd;
      put(card.root, 'class', isBusy ? 'card busy' : 'card');
      put(card.doing, 'text', isBusy ? doingOf(rec, moment, r) : mine.rows ? rowsText(mine.rows) : '');
      card.params.forEach((cell, i) => {
        put(cell, '--level', mine.params[i].toFixed(3));
        put(cell, 'data-on', mine.params[i] >= 0.5 ? '' : null);
        put(cell, '--fill', mine.fresh[i] ? 'var(--optimizer)' : 'var(--held)');
      });
      const isFresh = mine.fresh.length > 0 && mine.fresh.every(Boolean);
      put(card.shelves.params.total, 'text', bytes(Math.round(sum(rank.parameters.map(([, size], i) => mine.params[i] * size)))));
      let kept = 0;
      card.acts.forEach((cell, i) => {
        if (mine.acts[i]) kept += rank.cells[i].bytes;
        put(cell, '--level', mine.acts[i] ? 1 : 0);
        put(cell, 'data-on', mine.acts[i] ? '' : null);
        put(cell, '--fill', 'var(--forward)');
      });
      put(card.shelves.acts.total, 'text', kept ? bytes(kept) : '–');
      card.grads.forEach((cell, i) => {
        put(cell, '--level', mine.grads[i].toFixed(3));
        put(cell, 'data-on', mine.grads[i] >= 0.5 ? '' : null);
        put(cell, '--fill', 'var(--backward)');
      });
      const gradBytes = sum(rank.parameters.map((parameter, i) => mine.grads[i] * parameter[1]));
      put(card.shelves.grads.total, 'text', gradBytes ? bytes(Math.round(gradBytes)) : '–');
      for (const {c, box, levels, places} of card.frames) {
        const status = mine.buckets[c], isFull = places.every(i => mine.grads[i] >= 1);
        put(box, 'class', 'bucket ' + (status || (isFull ? 'full' : '')));
        if (isStep && c !== moment.collective) continue;
        levels.forEach((level, i) => {
          const held = mine.held[c][i] ?? 0;
          let parts = 0;
          for (let bit = held; bit; bit &= bit - 1) ++parts;
          const isOwnPart = rec.collectives[c].operation !== 'reduce_scatter' || parts === n;
          put(level, '--level', parts > 1 ? (parts / n).toFixed(3) : 0);
          put(level, 'class', status === 'done part' && !isOwnPart ? 'dropped' : '');
        });
      }
      put(card.state, '--level', rank.state ? 1 : 0);
      put(card.state, '--fill', isFresh ? 'var(--optimizer)' : 'var(--held)');
      const memory = memoryAt(rank.memory, moment.us);
      put(card.memory, 'text', memory ? `memory ${bytes(memory)}` : `sent ${bytes(state.sent[r])}`);
      const shows = isEnd && rec.style === 'ddp' && rank.hash;
      put(card.hash, 'text', shows ? `${equal ? '=' : '≠'} weights ${rank.hash}` : isFresh ? 'new weights' : '');
      put(card.hash, 'class', shows && !equal ? 'bad' : '');
    });
  }

  drawWords(moment) {
    const {rec, state} = this;
    put(this.sentence, 'text', moment.text);
    put(this.sentence, 'class', moment.kind === 'end' && rec.fault ? 'sentence bad' : 'sentence');
    put(this.reason, 'text', moment.reason);
    const operation = rec.collectives[moment.collective]?.operation ?? this.operationOf(moment);
    const quote = [operation, ...rec.code].map(word => this.quotes[`${moment.kind}.${word}`]).find(Boolean) ?? this.quotes[moment.kind];
    put(this.codePlace, 'text', quote ? `${quote.file}, line ${quote.line}` : 'No code of the engine: the step is over.');
    put(this.code, 'text', quote ? unindent(quote.text) : '');
    const most = Math.max(...state.sent), key = `${moment.us} ${most} ${sum(state.sent)}`;
    if (this.figuresKey === key) return;
    this.figuresKey = key;
    const noun = rec.noun;
    this.figures.replaceChildren(
      el('span', {}, el('b', {}, time(moment.us)), ` of ${time(rec.us)}`),
      el('span', {}, el('b', {}, bytes(sum(state.sent))), ' sent so far'),
      el('span', {}, el('b', {}, bytes(most)), rec.ranks.length > 1 ? ` by the ${noun} that sends most` : ' by the device'));
  }

  operationOf({kind, events}) {
    if (!['forward', 'backward'].includes(kind) || this.rec.style === 'pipeline') return '';
    const name = this.rec.ranks[this.rec.place.get(events[0][0])].operations[events[0][1]]?.[0] ?? '';
    return name.split(' ')[0];
  }

  // With --numbers: the buffer of the collective, chunk by chunk; else the gradient, or the weights.
  drawNumbers({kind, events, collective}) {
    if (!this.rec.numbers) return;
    const {rec, state} = this, most = 5, head = [], rows = [];
    const cell = (values, isNow) => el('td', {className: isNow ? 'now' : ''},
      values.slice(0, most).map(number).join(' ') + (values.length > most ? ' …' : ''));
    let caption = '';
    const info = rec.collectives[collective];
    if (info && state.ranks.some(mine => mine.values[collective])) {
      caption = `${info.label[0].toUpperCase()}${info.label.slice(1)}: its first numbers in each chunk`;
      const cuts = info.cuts.length > 9 ? [0, info.elements] : info.cuts;
      cuts.slice(1).forEach((cut, i) => head.push(cuts.length > 2 ? `chunk ${i}` : ''));
      state.ranks.forEach((mine, r) => mine.values[collective] && rows.push([rec.ranks[r].rank, ...cuts.slice(1).map((cut, i) => cell(
          mine.values[collective].slice(cuts[i], cut),
          kind === 'arrive' && events.some(([to, , offset, count]) => rec.place.get(to) === r && offset < cut && cuts[i] < offset + count)))]));
    } else if (kind === 'gradient') {
      caption = 'The first numbers of this gradient';
      for (const [rank, , values] of events) if (values) rows.push([rank, cell(values, true)]);
    } else if (kind === 'update' || kind === 'end') {
      caption = 'The first weights of each parameter, after the update';
      const known = rec.ranks.filter(rank => rank.updated.length && rank.updated[0][3]);
      known[0]?.updated.slice(0, 6).forEach(parameter => head.push(parameter[0]));
      for (const rank of known) rows.push([rank.rank, ...rank.updated.slice(0, 6).map(parameter => cell(parameter[3], false))]);
    }
    const table = el('table', {}, el('caption', {}, caption), el('tr', {}, el('th'), ...head.map(name => el('th', {}, name))),
      ...rows.map(([rank, ...cells]) => el('tr', {}, el('th', {}, `${rec.noun} ${rank}`), ...cells)));
    this.numbers.replaceChildren(...(rows.length ? [table] : []));
  }

  // ---- what travels ----

  launch(moment, isAnimated) {
    const flights = flightsOf(this.rec, moment).map(flight => {
      if (flight.parameter !== undefined) {
        const card = this.cards[this.rec.place.get(flight.to)], cell = this.rectOf(card.grads[flight.parameter]);
        const shelf = this.rectOf(card.shelves.acts.root.lastChild), x = cell.x + cell.w / 2;
        return {from: {x, y: shelf.y + shelf.h / 2}, to: {x, y: cell.y + cell.h / 2, w: Math.min(cell.w, 60)}, lift: 0, middle: {x}};
      }
      const to = this.spot(this.rec.place.get(flight.to), moment.kind, flight, moment.collective);
      const from = flight.from === null ? this.rowSpot(flight) :
          this.spot(this.rec.place.get(flight.from), moment.kind, flight, moment.collective);
      const dx = to.x - from.x, lift = flight.from === null ? 0 : Math.min(70, 18 + Math.abs(dx) * 0.16);
      return {from, to, lift, middle: {x: (from.x + to.x) / 2, y: Math.min(from.y, to.y) - lift}};
    });
    this.svg.replaceChildren(...flights.map(({from, to, middle, lift}) => {
      const path = document.createElementNS('http://www.w3.org/2000/svg', 'path');
      path.setAttribute('d', `M${from.x} ${from.y} Q${middle.x} ${lift ? middle.y : (from.y + to.y) / 2} ${to.x} ${to.y}`);
      return path;
    }));
    while (this.tokens.length < flights.length) {
      this.tokens.push(el('div', {className: 'token'}));
      this.stage.append(this.tokens.at(-1));
    }
    this.tokens.forEach((token, i) => {
      token.hidden = i >= flights.length;
      if (!token.hidden) token.style.width = flights[i].to.w + 'px';
    });
    this.flights = flights;
    this.flightBegin = isAnimated && !isStill ? performance.now() : -Infinity;
    this.fly(performance.now());
  }

  // Returns true while something travels.
  fly(now) {
    if (!this.flights?.length) return false;
    const u = Math.min(1, (now - this.flightBegin) / 550), e = u * u * (3 - 2 * u);
    this.flights.forEach(({from, to, middle, lift}, i) => {
      const curve = axis => lift ? (1 - e) ** 2 * from[axis] + 2 * e * (1 - e) * middle[axis] + e * e * to[axis]
          : from[axis] + e * (to[axis] - from[axis]);
      this.tokens[i].style.transform = `translate(${curve('x') - to.w / 2}px, ${curve('y') - 7}px)`;
    });
    return u < 1;
  }

  rowSpot({first, count, to}) {
    if (first === null) [first, count] = [this.total * this.rec.place.get(to) / this.rec.ranks.length, count / this.rec.ranks.length];
    const box = this.rectOf(this.ticks[0]), last = this.rectOf(this.ticks.at(-1));
    const x = at => box.x + (last.x + last.w - box.x) * at / this.total;
    return {x: x(first + count / 2), y: box.y + box.h / 2};
  }

  // ---- the map of the step ----

  resize() {
    // Rows go to and fro, so that neighbours in a ring are neighbours here.
    const columns = Math.min(this.columns, this.stage.clientWidth < 720 ? 2 : 4);
    this.cardsBox.style.setProperty('--columns', columns);
    this.cards.forEach(({root}, r) => {
      const line = Math.floor(r / columns), at = r % columns;
      root.style.gridRow = line + 1;
      root.style.gridColumn = (line % 2 ? columns - 1 - at : at) + 1;
    });
    const names = [...this.stage.querySelectorAll('.cell span')];
    const fits = names.map(name => name.scrollWidth <= name.parentElement.clientWidth);
    names.forEach((name, i) => name.style.visibility = fits[i] ? '' : 'hidden');
    this.stage.classList.toggle('narrow', this.cards[0].root.clientWidth < 200);
    this.forget();
    this.drawLanes();
    if (this.at >= 0) {
      this.cursor.style.transform = `translateX(${this.laneX(this.rec.moments[this.at].us)}px)`;
      this.launch(this.rec.moments[this.at], false);
    }
  }

  // Each rank's two streams. Those of a schedule have their calls in them, and below them stands what the rank holds.
  drawLanes() {
    const {rec} = this, width = this.lanes.clientWidth, n = rec.ranks.length, scale = devicePixelRatio || 1;
    const unit = n > 4 ? 15 : 19;
    const row = this.laneRow = rec.schedule ? {compute: 18, comm: 16, memory: 30, all: 74} : {compute: unit * 0.5, comm: unit * 0.28, memory: 0, all: unit};
    const height = n * row.all + 4;
    Object.assign(this.canvas, {width: Math.round(width * scale), height: Math.round(height * scale)});
    this.canvas.style.height = height + 'px';
    this.laneWidth = width - 2;
    const draw = this.canvas.getContext('2d');
    draw.scale(scale, scale);
    draw.font = '10px system-ui, sans-serif';
    const colors = {};
    const fill = (name, x, y, w, h) => {
      draw.fillStyle = colors[name] ??= css(name);
      draw.fillRect(x, y, w, h);
    };
    const piece = ([begin, end, , call], name, y, h) => {
      const x = this.laneX(begin), w = Math.max(1, this.laneX(end) - x);
      fill(name, x, y, w - (call && w > 3 ? 1 : 0), h);
      // "forward(2, 0)", or "2, 0", or nothing.
      const text = call && [call, call.replace(/.*\(|\)/g, '')].find(words => draw.measureText(words).width < w - 4);
      if (!text) return;
      draw.fillStyle = name === 'forward' ? '#1d2329' : css('paper');
      draw.fillText(text, x + 2, y + h / 2 + 3.5);
    };
    const most = Math.max(...rec.ranks.flatMap(({memory}) => memory.map(([, size]) => size)), 1);
    rec.lanes.forEach(([compute, comm], r) => {
      const y = r * row.all + 2;
      if (!rec.schedule) fill('tint', 0, y, width, unit - 3);
      for (const of of compute) piece(of, of[2] === 'communication' ? 'wait' : of[2] === 'step' ? 'tint' : of[2], y, row.compute);
      for (const of of comm) piece(of, 'comm', y + row.compute * 1.04, row.comm);
      if (!row.memory) return;
      const {rank, memory} = rec.ranks[r], bottom = y + row.all - 8;
      memory.forEach(([us, size], i) => {
        const x = this.laneX(us), end = this.laneX(memory[i + 1]?.[0] ?? rec.us), h = row.memory * size / most;
        fill('wait', x, bottom - h, end - x, h);
      });
      draw.fillStyle = css('ink');
      draw.fillText(`${rec.noun} ${rank} holds at most ${(Math.max(...memory.map(([, size]) => size), 0) / 1e6).toFixed(2)} MB`, 4, bottom - 4);
    });
  }

  laneX(us) { return (this.laneWidth ?? 0) * us / Math.max(this.rec.us, 1e-9); }

  usAt(event) { return (event.clientX - this.lanes.getBoundingClientRect().left) / this.laneWidth * this.rec.us; }

  // "rank 0: forward(2, 0), 1.2 ms to 3.4 ms"; empty between pieces.
  pieceAt(event) {
    const us = this.usAt(event), y = event.clientY - this.lanes.getBoundingClientRect().top - 2, row = this.laneRow;
    const r = Math.floor(y / row.all), inRow = y - r * row.all;
    const lane = inRow < row.compute ? 0 : inRow < row.compute * 1.04 + row.comm ? 1 : 2;
    const piece = this.rec.lanes[r]?.[lane]?.find(([begin, end]) => begin <= us && us < end);
    return piece ? `${this.rec.noun} ${this.rec.ranks[r].rank}: ${piece[3] ?? piece[2]}, ${time(piece[0])} to ${time(piece[1])}` : '';
  }

  momentAt(event) {
    const us = this.usAt(event);
    const distance = moment => Math.abs(moment.us - us);
    return this.rec.moments.reduce((best, moment, i) => distance(moment) < distance(this.rec.moments[best]) ? i : best, 0);
  }
}

const rowsText = ([first, count]) => first === null ? `${count} rows` : count ? `rows ${first}–${first + count - 1}` : 'no rows';

function doingOf(rec, moment, r) {
  const {kind, events} = moment;
  const names = {call: 'starts to send', arrive: 'sends, receives', done: 'received', update: 'updates', gradient: 'gradient',
    message: 'message', freed: 'frees', reduce: 'adds up', loss: 'loss', rows: 'rows', scatter: 'rows'};
  if (kind === 'forward' || kind === 'backward') {
    const event = events.find(([rank]) => rec.place.get(rank) === r);
    const name = rec.style === 'pipeline' ? '' : rec.ranks[r].operations[event?.[1]]?.[0] ?? '';
    return `${kind} ${name}`;
  }
  return names[kind] ?? kind;
}

function memoryAt(samples, us) {
  let found = 0;
  for (const [at, size] of samples) {
    if (at > us) break;
    found = size;
  }
  return found;
}

function unindent(text) {
  const lines = text.replace(/\n$/, '').split('\n');
  const least = Math.min(...lines.filter(line => line.trim()).map(line => line.search(/\S/)));
  return lines.map(line => line.slice(least)).join('\n');
}

// ---- All players, kept in step ----

// Each position is a moment of every player. Players meet where a phase begins; within it each goes at its own pace.
function positionsOf(recordings) {
  const positions = [];
  for (let phase = 0; phase < phaseNames.length; ++phase) {
    const own = recordings.map(rec => rec.moments.map((moment, i) => moment.phase === phase ? i : -1).filter(i => i >= 0));
    const length = Math.max(...own.map(moments => moments.length));
    for (let i = 0; i < length; ++i) {
      positions.push({phase, at: own.map((moments, r) => moments.length ? moments[Math.floor(i * moments.length / length)]
          : positions.at(-1)?.at[r] ?? 0)});
    }
  }
  return positions;
}

class Show {
  constructor(players) {
    Object.assign(this, {players, at: -1, isPlaying: false, positions: positionsOf(players.map(({rec}) => rec))});
    byId('slider').max = this.positions.length - 1;
    this.positions.reduce((spans, {phase}) => {
      if (spans.at(-1)?.phase !== phase) spans.push({phase, length: 0});
      ++spans.at(-1).length;
      return spans;
    }, []).forEach(({phase, length}) => {
      const span = el('span', {}, phaseNames[phase]);
      span.style.flex = `${length} 1 0`;
      span.style.setProperty('--of', `var(--${phaseColors[phase]})`);
      byId('phases').append(span);
    });
    players.forEach((player, p) => player.onPick = moment => this.go(this.positions.findIndex(({at}) => at[p] >= moment)));
    byId('slider').addEventListener('input', event => this.go(Number(event.target.value)));
    byId('first').onclick = () => this.go(0);
    byId('back').onclick = () => this.go(this.at - 1);
    byId('next').onclick = () => this.go(this.at + 1);
    byId('play').onclick = () => this.play(!this.isPlaying);
    document.addEventListener('keydown', event => this.onKey(event));
    addEventListener('resize', () => this.resize());
    this.resize();
    addEventListener('hashchange', () => this.goToHash());
  }

  resize() {
    this.players.forEach(player => player.resize());
    for (const name of byId('phases').children) name.style.color = name.scrollWidth > name.clientWidth ? 'transparent' : '';
  }

  go(at) {
    at = Math.max(0, Math.min(at, this.positions.length - 1));
    if (at === this.at) return;
    this.at = at;
    this.players.forEach((player, p) => player.show(this.positions[at].at[p], true));
    byId('slider').value = at;
    byId('slider').setAttribute('aria-valuetext', this.players.map(({sentence}) => sentence.textContent).join(' '));
    byId('place').textContent = `${at + 1} / ${this.positions.length}`;
    document.documentElement.dataset.at = at;
    this.moved = performance.now();
    this.animate();
  }

  // "#12": that place; "#arrive.3": the third moment of this kind.
  goToHash() {
    const [kind, nth] = location.hash.slice(1).split('.');
    const found = this.positions.map((_, i) => i).filter(i => this.players.some(({rec}, p) => rec.moments[this.positions[i].at[p]].kind === kind));
    this.go(found[(Number(nth) || 1) - 1] ?? (Number(kind) - 1 || 0));
  }

  goToPhase(step) {
    const begins = this.positions.map(({phase}, i) => i === 0 || this.positions[i - 1].phase !== phase ? i : -1).filter(i => i >= 0);
    this.go(step > 0 ? begins.find(i => i > this.at) ?? this.positions.length - 1 : begins.findLast(i => i < this.at) ?? 0);
  }

  onKey(event) {
    if (event.ctrlKey || event.altKey || event.metaKey) return;
    const isButton = event.target.tagName === 'BUTTON' || event.target.tagName === 'SUMMARY';
    const act = {ArrowRight: () => this.go(this.at + 1), ArrowLeft: () => this.go(this.at - 1), Home: () => this.go(0),
      End: () => this.go(this.positions.length - 1), PageDown: () => this.goToPhase(1), PageUp: () => this.goToPhase(-1),
      ' ': isButton ? null : () => this.play(!this.isPlaying)}[event.key];
    if (!act) return;
    event.preventDefault();
    if (event.key !== ' ') this.play(false);
    act();
  }

  play(isPlaying) {
    if (isPlaying && this.at === this.positions.length - 1) this.go(0);
    this.isPlaying = isPlaying;
    byId('play').textContent = isPlaying ? '❚❚' : '▶';
    byId('play').setAttribute('aria-label', isPlaying ? 'Pause' : 'Play');
    this.moved = performance.now();
    if (isPlaying) this.animate();
  }

  // Runs while something travels or plays. A moment stays long enough to be read, unless there are very many.
  animate() {
    if (this.isAnimating) return;
    this.isAnimating = true;
    const frame = now => {
      const isFlying = this.players.map(player => player.fly(now)).includes(true);
      if (this.isPlaying && now - this.moved > Math.min(1600, Math.max(350, 9e4 / this.positions.length))) {
        this.at + 1 < this.positions.length ? this.go(this.at + 1) : this.play(false);
      }
      this.isAnimating = isFlying || this.isPlaying;
      if (this.isAnimating) requestAnimationFrame(frame);
    };
    requestAnimationFrame(frame);
  }
}

function start() {
  const quotes = JSON.parse(byId('quotes').textContent), lists = byId('lists').querySelectorAll('section');
  const recordings = JSON.parse(byId('recordings').textContent).map((recording, i) => read(recording, lists[i]));
  const parent = byId('players');
  parent.className = recordings.length > 1 ? 'two' : '';
  const players = recordings.map(rec => new Player(rec, quotes, parent));
  document.title = `Lockstep: ${recordings.map(({title}) => title).join(' and ')}`;
  byId('controls').hidden = byId('keys').hidden = false;
  byId('lists').open = false;
  const show = new Show(players);
  document.documentElement.className = 'still';  // the first moment is there at once
  show.goToHash();
  document.body.getBoundingClientRect();
  document.documentElement.className = '';
  document.documentElement.dataset.moments = show.positions.length;
  matchMedia('(prefers-color-scheme: dark)').addEventListener('change', () => show.resize());
  window.show = show;
}
start();
