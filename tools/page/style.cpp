#include "tools/page/style.h"

namespace lockstep::tools::page {

const std::string_view kStyle = R"css(
:root {
  color-scheme: light dark;
  --paper: #fcfcfa; --ink: #1d2329; --soft: #5c666f; --faint: #8a939b; --hair: #e3e5e4;
  --tint: #f3f4f1;
  --forward: #6fbdea; --backward: #0072b2; --optimizer: #009e73; --comm: #d55e00; --copy: #e69f00;
  --wait: #c3c7ca; --data: #cc79a7; --host: #8b7fae; --unattributed: #6e767c;
  --single: #5c666f; --dp: #c75400; --ddp: #0072b2; --one: #00805d; --two: #a8568a; --three: #9a6c00;
  --four: #4a5fb0; --five: #b0304a; --six: #3f7d8c; --seven: #6b7d00; --eight: #7a4ab0;
}
@media (prefers-color-scheme: dark) {
  :root {
    --paper: #14181c; --ink: #e8eaeb; --soft: #a6afb6; --faint: #7e8890; --hair: #2b3238;
    --tint: #1b2126;
    --forward: #8fcdf2; --backward: #3d94cf; --optimizer: #2fb58c; --comm: #ee7b30; --copy: #f0b93a;
    --wait: #59636b; --data: #d99abd; --host: #a599c9; --unattributed: #aab2b8;
    --single: #a6afb6; --dp: #f08a45; --ddp: #62b1e5; --one: #46c79f; --two: #dd9dc2; --three: #e0b04a;
    --four: #93a5ee; --five: #f08a9c; --six: #7fc4d4; --seven: #b8cc4a; --eight: #bd9aee;
  }
}
* { box-sizing: border-box; }
html { -webkit-text-size-adjust: 100%; }
body {
  margin: 0 auto; max-width: 1168px; padding: clamp(20px, 4vw, 56px) clamp(16px, 3vw, 24px) 64px;
  background: var(--paper); color: var(--ink);
  font: 15px/1.55 system-ui, -apple-system, "Segoe UI", Roboto, "Helvetica Neue", "Noto Sans", Arial,
    sans-serif;
  font-variant-numeric: tabular-nums; overflow-wrap: anywhere;
}
h1, h2, h3, p, ul, dl, figure { margin: 0; padding: 0; }
h1 { font-size: clamp(26px, 4vw, 36px); line-height: 1.15; font-weight: 650; letter-spacing: -0.02em; }
h2 { font-size: clamp(20px, 2.6vw, 25px); line-height: 1.2; font-weight: 650; letter-spacing: -0.012em; }
h3 { font-size: 15px; font-weight: 650; }
a { color: inherit; text-decoration-color: var(--faint); text-underline-offset: 3px; }
.lede { color: var(--soft); margin-top: 6px; max-width: 78ch; }
section { margin-top: 44px; padding-top: 30px; border-top: 1px solid var(--hair); }
.tiles { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(100%, 140px), 1fr)); gap: 18px 28px;
  margin-top: 26px; }
.tiles dt { color: var(--soft); font-size: 13px; }
.tiles dd { margin: 0; font-size: 28px; line-height: 1.2; font-weight: 600; letter-spacing: -0.02em; }
.tiles small { display: block; color: var(--faint); font-size: 12.5px; font-weight: 400; letter-spacing: 0;
  line-height: 1.4; }
.findings { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(100%, 420px), 1fr));
  gap: 20px 40px; margin-top: 30px; }
.findings p { color: var(--soft); margin-top: 3px; font-size: 14px; }
.figures { display: grid; grid-template-columns: repeat(auto-fill, minmax(min(100%, 300px), 1fr));
  gap: 38px 32px; margin-top: 36px; align-items: start; }
figure { min-width: 0; }
@media (min-width: 1010px) { .wide { grid-column: span 2; } }
@media (min-width: 700px) and (max-width: 1009px) { .wide { grid-column: 1 / -1; } }
.full { grid-column: 1 / -1; }
figcaption { color: var(--soft); font-size: 14px; margin-bottom: 10px; }
figcaption b { color: var(--ink); font-weight: 650; margin-right: 2px; }
svg { display: block; }
.chart { width: 100%; height: auto; overflow: hidden; }
.bars { overflow: hidden; }
text { fill: var(--soft); font-size: 11.5px; font-family: inherit; }
.axis { fill: var(--soft); font-size: 11.5px; }
.tick { fill: var(--faint); font-size: 11px; }
.name { fill: var(--ink); font-size: 12.5px; }
.value { fill: var(--soft); font-size: 12.5px; }
.grid { stroke: var(--hair); } .base { stroke: var(--faint); stroke-opacity: 0.6; }
.label { font-size: 12px; font-weight: 600; fill: var(--c); }
.line { fill: none; stroke: var(--c); stroke-width: 2; stroke-linejoin: round; stroke-linecap: round; }
.marker { fill: var(--c); stroke: var(--paper); stroke-width: 1.5; }
.acted .line { stroke-dasharray: 7 4; }
.acted .marker, .predicted .marker { fill: var(--paper); stroke: var(--c); stroke-width: 1.8; }
.predicted .line { stroke-dasharray: 1 4.5; }
.ideal .line { stroke-width: 1.3; stroke-dasharray: 3 3.5; stroke: var(--faint); }
.label.ideal { fill: var(--faint); font-weight: 400; }
.s-single { --c: var(--single); } .s-dp { --c: var(--dp); } .s-ddp { --c: var(--ddp); }
.s-ideal { --c: var(--faint); } .s-1 { --c: var(--one); } .s-2 { --c: var(--two); }
.s-3 { --c: var(--three); } .s-4 { --c: var(--four); } .s-5 { --c: var(--five); }
.s-6 { --c: var(--six); } .s-7 { --c: var(--seven); } .s-8 { --c: var(--eight); }
.m-s-single { fill: var(--single); } .m-s-dp { fill: var(--dp); } .m-s-ddp { fill: var(--ddp); }
.m-s-1 { fill: var(--one); } .m-s-2 { fill: var(--two); } .m-s-3 { fill: var(--three); }
.m-s-4 { fill: var(--four); } .m-s-5 { fill: var(--five); } .m-s-6 { fill: var(--six); }
.m-s-7 { fill: var(--seven); } .m-s-8 { fill: var(--eight); }
.band { stroke: var(--ink); stroke-width: 1.4; }
.c-forward { fill: var(--forward); } .c-backward { fill: var(--backward); }
.c-optimizer { fill: var(--optimizer); } .c-comm { fill: var(--comm); } .c-copy { fill: var(--copy); }
.c-wait { fill: var(--wait); } .c-data { fill: var(--data); } .c-host { fill: var(--host); }
.c-unattributed { fill: var(--unattributed); } .c-unjudged { fill: var(--comm); }
.c-hidden { fill: var(--comm); fill-opacity: 0.42; }
.lane { fill: var(--tint); }
.inside { fill: #fff; font-size: 11px; }
.on-c-forward, .on-c-copy, .on-c-wait, .on-c-data { fill: #10181f; }
g.acted rect { fill-opacity: 0.62; }
g.predicted rect { fill-opacity: 0.3; stroke: var(--soft); stroke-width: 1; stroke-dasharray: 3 2; }
g.predicted .inside, g.acted .inside { fill: var(--ink); }
.legend { display: flex; flex-wrap: wrap; gap: 3px 16px; list-style: none; margin-top: 8px;
  color: var(--soft); font-size: 12.5px; }
.legend li { display: flex; align-items: center; gap: 6px; }
.note { color: var(--faint); font-size: 13px; margin-top: 6px; }
.kinds { color: var(--soft); font-size: 13px; margin-top: 18px; display: flex; flex-wrap: wrap; gap: 4px 20px; }
.kinds span { display: inline-flex; align-items: center; gap: 7px; }
.scroll { overflow-x: auto; margin-top: 34px; overflow-wrap: normal; }
@media (min-width: 1240px) {
  .scroll { width: max-content; min-width: 100%; max-width: calc(100vw - 64px); margin-left: 50%;
    transform: translateX(-50%); }
}
table { border-collapse: collapse; width: 100%; font-size: 12.5px; white-space: nowrap; }
th, td { padding: 6px 7px; text-align: right; border-bottom: 1px solid var(--hair); font-weight: 400; }
thead th { color: var(--soft); font-size: 12px; border-bottom-color: var(--faint); }
th:first-child, td:first-child { text-align: left; padding-left: 0; }
th:nth-child(2), td:nth-child(2) { text-align: left; }
th:last-child, td:last-child { padding-right: 0; }
tbody th { font-weight: 650; }
.runs { white-space: normal; min-width: 760px; overflow-wrap: normal; }
.runs th:nth-child(-n+6), .runs td:nth-child(-n+6) { text-align: left; }
.badge { font-size: 12px; color: var(--soft); }
.kind-acted .badge { border-bottom: 1.5px dashed var(--soft); }
.kind-predicted { color: var(--soft); font-style: italic; background: var(--tint); }
.kind-predicted .badge { border-bottom: 2px dotted var(--soft); }
.origin { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(100%, 420px), 1fr)); gap: 24px 40px;
  margin-top: 34px; }
.origin p { color: var(--soft); font-size: 14px; margin-top: 3px; }
pre { margin: 6px 0 0; padding: 10px 12px; background: var(--tint); border-radius: 6px; white-space: pre-wrap;
  font: 12.5px/1.5 ui-monospace, "SF Mono", Menlo, Consolas, "DejaVu Sans Mono", monospace; }
.config { display: grid; grid-template-columns: repeat(auto-fill, minmax(min(100%, 240px), 1fr)); gap: 0 32px;
  margin-top: 8px; font-size: 13px; }
.config div { display: flex; justify-content: space-between; gap: 16px; padding: 3px 0;
  border-bottom: 1px solid var(--hair); }
.config dt { color: var(--soft); } .config dd { margin: 0; text-align: right; }
details { margin-top: 24px; } summary { cursor: pointer; color: var(--soft); font-size: 14px; }
details.run { margin-top: 14px; border-top: 1px solid var(--hair); padding-top: 12px; }
details.run > summary { font-size: 16px; font-weight: 600; color: var(--ink); }
footer { margin-top: 56px; color: var(--faint); font-size: 13px; }
@media print {
  :root { color-scheme: light; --paper: #fff; }
  body { max-width: none; padding: 0; font-size: 10pt; print-color-adjust: exact;
    -webkit-print-color-adjust: exact; }
  figure, .findings div, tr { break-inside: avoid; }
  h2, h3 { break-after: avoid; }
  .scroll { overflow: visible; width: auto; margin-left: 0; transform: none; }
  table { font-size: 6.6pt; } th, td { padding: 3px 4px; }
  details > summary { display: none; }
}
)css";

}  // namespace lockstep::tools::page
