import { expect, test } from "bun:test";
import { compileTemplate } from "./execute.ts";
import { type Shape, wrap } from "./value.ts";

const spec: Shape = {
  type: "struct",
  name: "v3.Spec",
  fields: new Map([
    ["nets", { shape: { type: "list", item: { type: "string" } }, from: (d) => (d as { nets?: unknown }).nets }],
    ["order", { shape: { type: "float" }, pointer: true, from: (d) => (d as { order?: unknown }).order }],
    ["cidr", { shape: { type: "string" }, from: (d) => (d as { cidr?: unknown }).cidr }],
    ["count", { shape: { type: "int" }, from: (d) => (d as { count?: unknown }).count }],
    ["labels", { shape: { type: "map", item: { type: "string" } }, from: (d) => (d as { labels?: unknown }).labels }],
  ]),
};
const data = wrap([{ nets: ["10.0.0.0/8", "fd00::/8"], order: 1e6, count: 7, labels: { b: "2", a: "1" } }, {}], {
  type: "list",
  item: spec,
});
const run = (source: string) => compileTemplate("get", source).execute(data);

const cases: { name: string; source: string; want: string }[] = [
  { name: "text alone", source: "a{b}", want: "a{b}" },
  { name: "range and fields", source: "{{range .}}[{{.Count}}]{{end}}", want: "[7][0]" },
  {
    name: "fields in any case, zero values",
    source: "{{range .}}({{.CIDR}}{{.Nets}}){{end}}",
    want: "([10.0.0.0/8 fd00::/8])([])",
  },
  {
    name: "a float is printed as in Go, nil if it is not set",
    source: "{{range .}}{{.Order}} {{end}}",
    want: "1e+06 <nil> ",
  },
  {
    name: "if, else if, else",
    source: "{{range .}}{{if gt .Count 5}}big{{else if .Count}}small{{else}}none{{end}} {{end}}",
    want: "big none ",
  },
  { name: "with", source: "{{range .}}{{with .Nets}}{{index . 0}}{{else}}-{{end}}{{end}}", want: "10.0.0.0/8-" },
  { name: "join", source: '{{range .}}{{join .Nets ","}};{{end}}', want: "10.0.0.0/8,fd00::/8;;" },
  { name: "joinAndTruncate", source: '{{range .}}{{joinAndTruncate .Nets "," 12}};{{end}}', want: "10.0.0.0/...;;" },
  {
    name: "variables for index and item",
    source: "{{range $i, $x := .}}{{$i}}={{len $x.Nets}} {{end}}",
    want: "0=2 1=0 ",
  },
  {
    name: "an assignment in a block changes the outer variable",
    source: "{{$n := 0}}{{range .}}{{$n = .Count}}{{end}}{{$n}}",
    want: "0",
  },
  {
    name: "a map is iterated in the order of its keys",
    source: "{{range .}}{{range $k, $v := .Labels}}{{$k}}{{$v}}{{end}}{{end}}",
    want: "a1b2",
  },
  { name: "pipelines", source: '{{"a,b" | printf "%q %s" "x"}}', want: '"x" a,b' },
  { name: "parentheses", source: "{{if and (eq 1 1) (not (ne 2 2))}}yes{{end}}", want: "yes" },
  { name: "trimmed white space", source: "a \n {{- 1 -}} \n b", want: "a1b" },
  { name: "comments", source: "a{{/* no */}}b {{- /* trimmed */ -}} c", want: "abc" },
  {
    name: "define and template",
    source: '{{define "t"}}<{{.}}>{{end}}{{template "t" 5}}{{block "u" 6}}({{.}}){{end}}',
    want: "<5>(6)",
  },
  {
    name: "break and continue",
    source: "{{range 5}}{{if eq . 1}}{{continue}}{{end}}{{if eq . 3}}{{break}}{{end}}{{.}}{{end}}",
    want: "02",
  },
  { name: "and stops early", source: "{{if and false (index . 99)}}x{{else}}y{{end}}", want: "y" },
  { name: "dollar is the root", source: "{{range .}}{{len $}}{{end}}", want: "22" },
  { name: "printf with width", source: '{{printf "%-5s|%05d|%.2f" "ab" 42 1.5}}', want: "ab   |00042|1.50" },
  { name: "raw strings and newlines", source: '{{print `a"b` "\\n"}}', want: 'a"b\n' },
];
for (const { name, source, want } of cases) test(`TC-C21 go-template: ${name}`, () => expect(run(source)).toBe(want));

const faults: { source: string; want: string }[] = [
  { source: "{{.Foo", want: "template: get:1: unclosed action" },
  { source: "\n{{range .}}", want: "template: get:2: unexpected EOF" },
  { source: "{{end}}", want: "template: get:1: unexpected {{end}}" },
  { source: "{{nope}}", want: 'template: get:1: function "nope" not defined' },
  { source: "{{$x}}", want: 'template: get:1: undefined variable "$x"' },
  {
    source: "{{range .}}{{.Foo}}{{end}}",
    want: 'template: get:1:13: executing "get" at <.Foo>: can\'t evaluate field Foo in type v3.Spec',
  },
  { source: "{{len 5}}", want: 'template: get:1:2: executing "get" at <len>: error calling len: len of type int' },
  { source: "{{break}}", want: "template: get:1: {{break}} outside {{range}}" },
  { source: '{{define "r"}}{{template "r"}}{{end}}{{template "r"}}', want: "nested more than 100 times" },
];
for (const { source, want } of faults)
  test(`TC-C21 go-template rejects ${JSON.stringify(source)}`, () => expect(() => run(source)).toThrow(want));
