/* The page at /: conversations with the server that it came from. All that it keeps is in this browser. */
'use strict';

const $ = id => document.getElementById(id);

function make(tag, properties, ...children) {
  const e = Object.assign(document.createElement(tag), properties);
  e.append(...children);
  return e;
}

/* ---- what is kept ---- */

const KEPT = 'caravan.conversations', FIELDS = ['temperature', 'top_p', 'top_k', 'min_p',
  'repetition_penalty', 'presence_penalty', 'frequency_penalty', 'max_tokens', 'seed'];

function load(name, otherwise) {
  try {
    return JSON.parse(localStorage.getItem(name)) ?? otherwise;
  } catch {
    return otherwise;
  }
}

/* A conversation: {id, title, mode, system, set: {temperature: "0.7", …}, messages: [{role, content, thought, note}]}. */
let conversations = load(KEPT, []);
let current = null;  // the conversation that is shown
let running = null;  // the answer that comes in: {conversation, abort}

function save() {
  try {
    localStorage.setItem(KEPT, JSON.stringify(conversations));
  } catch {
    say('This browser has no room left for conversations; delete some to keep new ones.');
  }
}

function begin() {
  const like = current ?? conversations[0];
  current = {id: Date.now().toString(36) + Math.random().toString(36).slice(2, 8), title: '', mode: like?.mode ?? 'chat',
             system: like?.system ?? '', set: {...like?.set}, messages: []};
  conversations.unshift(current);
  save();
  showAll();
  $('input').focus();
}

/* ---- the server ---- */

let key = sessionStorage.getItem('caravan.key') ?? load('caravan.key', '');
let asking = null;  // the promise of a key

function askForKey(why) {
  asking ??= new Promise(done => {
    $('key-why').textContent = why;
    $('keys').addEventListener('close', () => {
      asking = null;
      done();
    }, {once: true});
    $('keys').showModal();
  });
  return asking;
}

$('key-form').addEventListener('submit', () => {
  key = $('key').value.trim();
  sessionStorage.setItem('caravan.key', key);
  localStorage.removeItem('caravan.key');
  if ($('keep').checked)
    localStorage.setItem('caravan.key', JSON.stringify(key));
  $('key').value = '';
});

async function ask(path, options = {}) {
  for (;;) {
    const headers = {...(options.body && {'Content-Type': 'application/json'}), ...(key && {'x-api-key': key})};
    const used = key, answer = await fetch(path, {...options, headers});
    if (answer.status !== 401)
      return answer;
    if (used === key)
      await askForKey(used ? 'The key is not known here.' : '');
    if (used === key)
      return answer;  // the question was closed without another
  }
}

async function reasonOf(answer) {
  const text = await answer.text();
  try {
    return JSON.parse(text).error.message;
  } catch {
    return `The server answered with status ${answer.status}.`;
  }
}

/* The objects of a stream of events. */
async function* events(answer) {
  const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
  let held = '';
  for (;;) {
    const {value, done} = await reader.read();
    if (done)
      return;
    const lines = (held + value).split('\n');
    held = lines.pop();
    for (const line of lines)
      if (line.startsWith('data: {'))
        yield JSON.parse(line.slice(6));
  }
}

/* ---- an answer ---- */

function request(c, upTo) {
  const body = {stream: true, stream_options: {include_usage: true, continuous_usage_stats: true}};
  if ($('model').value)
    body.model = $('model').value;
  for (const name of FIELDS)
    if (c.set[name])
      body[name] = Number(c.set[name]);
  if (c.mode === 'text') {
    body.max_tokens ??= 256;
    body.prompt = c.messages.slice(0, upTo).map(m => m.content).join('');
    return ['/v1/completions', body];
  }
  body.messages = c.messages.slice(0, upTo).filter(m => !m.failed).map(({role, content}) => ({role, content}));
  if (c.system)
    body.messages.unshift({role: 'system', content: c.system});
  return ['/v1/chat/completions', body];
}

async function answer(c) {
  const m = {role: 'assistant', content: '', thought: '', note: ''}, [path, body] = request(c, c.messages.length);
  const run = running = {conversation: c, abort: new AbortController()};
  c.messages.push(m);
  showAll();
  say('');
  const start = performance.now();
  let first = 0, usage = null, reason = '';
  try {
    const reply = await ask(path, {method: 'POST', body: JSON.stringify(body), signal: run.abort.signal});
    if (!reply.ok)
      throw new Error(await reasonOf(reply));
    for await (const event of events(reply)) {
      if (event.error)
        throw new Error(event.error.message);
      const choice = event.choices[0];
      usage = event.usage ?? usage;
      reason = choice?.finish_reason ?? reason;
      const text = choice?.delta?.content ?? choice?.text ?? '', thought = choice?.delta?.reasoning_content ?? '';
      if (!text && !thought)
        continue;
      first ||= performance.now();
      m.content += text;
      m.thought += thought;
      m.note = figures(usage, start, first);
      showSoon(c, m);
    }
    say('The answer is complete. ' + m.note);
  } catch (e) {
    if (e.name === 'AbortError') {
      reason = 'stopped';
      say('Stopped.');
    } else {
      m.failed = !m.content;
      m.note = [m.note, e.message].filter(Boolean).join(' · ');
      say(e.message);
    }
  }
  if (reason === 'length')
    m.note += ' · most tokens reached';
  if (reason === 'stopped')
    m.note += ' · stopped';
  running = null;
  $('speed').textContent = '';
  save();
  showAll();
}

function figures(usage, start, first) {
  if (!usage)
    return '';
  const seconds = (performance.now() - first) / 1000, n = usage.completion_tokens;
  const cached = usage.prompt_tokens_details?.cached_tokens;
  const speed = n > 1 && seconds > 0 ? ` · ${((n - 1) / seconds).toFixed(1)} tokens/s` : '';
  return `${n} tokens${speed} · first after ${((first - start) / 1000).toFixed(2)} s · prompt ${usage.prompt_tokens}` +
         (cached ? ` (${cached} cached)` : '');
}

function send(text) {
  if (running || !text.trim())
    return;
  current.messages.push({role: 'user', content: text});
  current.title ||= text.trim().slice(0, 60);
  answer(current);
}

function regenerate(i) {
  current.messages.length = i;
  answer(current);
}

/* ---- what is shown ---- */

function say(text) {
  $('status').textContent = text;
}

/* Text, with what stands between lines of ``` as code. */
function body(text) {
  const parts = text.split(/^```.*$\n?/m), e = make('div', {className: 'body'});
  parts.forEach((part, i) => {
    if (part)
      e.append(i % 2 ? make('pre', {tabIndex: 0}, make('code', {}, part)) : make('p', {}, part));
  });
  return e;
}

function parts(m) {
  const list = [];
  if (m.thought)
    list.push(make('details', {open: !m.content}, make('summary', {}, 'Thoughts'), make('p', {}, m.thought)));
  list.push(body(m.failed ? m.note : m.content));
  return list;
}

function tool(name, act) {
  const b = make('button', {type: 'button', disabled: !!running}, name);
  b.addEventListener('click', act);
  return b;
}

function tools(m, i) {
  const e = make('div', {className: 'tools'});
  const last = i === current.messages.length - 1;
  e.append(tool('Copy', () => navigator.clipboard.writeText(m.content).then(() => say('Copied.'))),
           tool('Edit', () => edit(m, i)));
  if (m.role === 'assistant' && last)
    e.append(tool('Regenerate', () => regenerate(i)));
  if (m.role === 'user' && last)
    e.append(tool('Answer', () => regenerate(i + 1)));
  e.append(make('span', {}, m.failed ? '' : m.note ?? ''));
  return e;
}

function article(m, i) {
  const busy = running?.conversation === current && i === current.messages.length - 1;
  const e = make('article', {className: m.failed ? 'error' : m.role},
                 make('h2', {}, m.role === 'user' ? 'You' : 'The model'), ...parts(m));
  e.setAttribute('aria-busy', busy);
  if (!busy)
    e.append(tools(m, i));
  return e;
}

function edit(m, i) {
  const field = make('textarea', {value: m.content, rows: Math.min(20, m.content.split('\n').length + 2)});
  field.setAttribute('aria-label', 'Edit the message');
  const done = () => {
    m.content = field.value;
    if (m.role === 'user')
      return regenerate(i + 1);
    save();
    showAll();
  };
  field.addEventListener('keydown', e => {
    if (e.key === 'Escape')
      showAll();
    if (e.key === 'Enter' && (e.ctrlKey || e.metaKey))
      done();
  });
  const old = $('log').children[i];
  old.replaceChildren(old.firstChild, field, make('div', {className: 'tools'},
    tool(m.role === 'user' ? 'Save and answer' : 'Save', done), tool('Cancel', showAll)));
  field.focus();
}

/* The end of the log stays in sight, unless the reader has gone elsewhere. */
function keepEnd(change) {
  const log = $('log'), atEnd = log.scrollHeight - log.scrollTop - log.clientHeight < 60;
  change();
  if (atEnd)
    log.scrollTop = log.scrollHeight;
}

/* What has come in, a few times in a second; the reader hears of the end only. */
let due = 0;

function showSoon(c, m) {
  due ||= setTimeout(() => {
    due = 0;
    $('speed').textContent = running ? m.note : '';
    const e = $('log').lastChild;
    if (running && current === c && e.getAttribute('aria-busy') === 'true')
      keepEnd(() => e.replaceChildren(e.firstChild, ...parts(m)));
  }, 80);
}

function showLog() {
  keepEnd(() => $('log').replaceChildren(...(current.messages.length ? current.messages.map(article) :
    [make('p', {className: 'empty'}, 'Nothing has been said yet.')])));
}

function showConversations() {
  $('conversations').replaceChildren(...conversations.map(c => {
    const title = c.title || 'New conversation', open = make('button', {type: 'button', className: 'open'}, title);
    if (c === current)
      open.setAttribute('aria-current', 'true');
    open.addEventListener('click', () => {
      current = c;
      showMenu(false);
      showAll();
      $('log').scrollTop = $('log').scrollHeight;
    });
    const remove = make('button', {type: 'button', title: 'Delete', disabled: running?.conversation === c}, '✕');
    remove.setAttribute('aria-label', `Delete ${title}`);
    remove.addEventListener('click', () => {
      if (!confirm(`Delete “${title}”?`))
        return;
      conversations = conversations.filter(other => other !== c);
      if (c === current)
        current = conversations[0] ?? null;
      save();
      current ? showAll() : begin();
    });
    return make('li', {}, open, remove);
  }));
}

function showSettings() {
  $('system').value = current.system;
  $('mode').value = current.mode;
  for (const name of FIELDS)
    $('settings').elements[name].value = current.set[name] ?? '';
}

function showAll() {
  showConversations();
  showSettings();
  showLog();
  $('send').hidden = !!running;
  $('stop').hidden = !running;
}

function showMenu(shown) {
  $('side').classList.toggle('shown', shown);
  $('menu').setAttribute('aria-expanded', shown);
}

/* ---- the queue ---- */

function showQueue(text) {
  const of = name => text.split('\n').filter(line => line.startsWith(name + '{'))
    .reduce((sum, line) => sum + Number(line.slice(line.lastIndexOf(' '))), 0);
  const busy = of('vllm:num_requests_running'), waiting = of('vllm:num_requests_waiting');
  const rows = [...text.matchAll(/cache_config_info{.*?rows="(\d+)"/g)].reduce((sum, m) => sum + Number(m[1]), 0);
  const marks = [];
  for (let i = 0; i < Math.min(rows, 256); i++)
    marks.push(make('i', {className: i < busy ? 'busy' : ''}));
  for (let i = 0; i < Math.min(waiting, 64); i++)
    marks.push(make('i', {className: 'waits'}));
  $('rows').replaceChildren(...marks);
  $('load').textContent = `${busy} of ${rows} rows at work, ${waiting} waiting`;
}

async function watch() {
  try {
    const reply = document.hidden || asking ? null : await fetch('/metrics', {headers: key ? {'x-api-key': key} : {}});
    if (reply?.ok)
      showQueue(await reply.text());
  } catch {
    $('load').textContent = 'The server does not answer.';
  }
  setTimeout(watch, running ? 500 : 2000);
}

async function findModels() {
  try {
    const reply = await ask('/v1/models');
    if (!reply.ok)
      throw new Error(await reasonOf(reply));
    $('model').replaceChildren(...(await reply.json()).data.map(m => make('option', {}, m.id)));
    say('');
  } catch (e) {
    say(e.message);
    setTimeout(findModels, 1000);
  }
}

/* ---- the reader ---- */

const THEMES = {auto: 'Auto', light: 'Light', dark: 'Dark'};

function setTheme(name) {
  document.documentElement.dataset.theme = name;
  $('theme').textContent = THEMES[name];
  $('theme').setAttribute('aria-label', `Theme: ${THEMES[name]}`);
  localStorage.setItem('caravan.theme', JSON.stringify(name));
}

$('theme').addEventListener('click', () => {
  const names = Object.keys(THEMES);
  setTheme(names[(names.indexOf(document.documentElement.dataset.theme) + 1) % names.length]);
});
$('new').addEventListener('click', () => {
  showMenu(false);
  begin();
});
$('menu').addEventListener('click', () => showMenu(!$('side').classList.contains('shown')));
$('toggle').addEventListener('click', () => {
  $('settings').hidden = !$('settings').hidden;
  $('toggle').setAttribute('aria-expanded', !$('settings').hidden);
});
$('settings').addEventListener('input', () => {
  current.system = $('system').value;
  current.mode = $('mode').value;
  for (const name of FIELDS)
    current.set[name] = $('settings').elements[name].value;
  save();
});
$('settings').addEventListener('submit', e => e.preventDefault());
$('rekey').addEventListener('click', () => askForKey('').then(findModels));
$('ask').addEventListener('submit', e => {
  e.preventDefault();
  const text = $('input').value;
  if (running || !text.trim())
    return;
  $('input').value = '';
  send(text);
});
$('input').addEventListener('keydown', e => {
  if (e.key === 'Enter' && !e.shiftKey && !e.isComposing) {
    e.preventDefault();
    $('ask').requestSubmit();
  }
});
$('stop').addEventListener('click', () => running?.abort.abort());
document.addEventListener('keydown', e => {
  if (e.key === 'Escape' && !$('keys').open)
    running?.abort.abort();
});

setTheme(load('caravan.theme', 'auto'));
if (conversations.length) {
  current = conversations[0];
  showAll();
  $('log').scrollTop = $('log').scrollHeight;
  $('input').focus();
} else {
  begin();
}
findModels().then(watch);
