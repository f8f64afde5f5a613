// Parses IP prefixes in CEL with text functions only, because the API server has a library for them only since Kubernetes 1.31.
// https://kubernetes.io/docs/reference/using-api/cel/#kubernetes-cidr-library

const NIBBLES = `[${Array.from({ length: 16 }, (_, i) => `'${i.toString(2).padStart(4, "0")}'`).join(", ")}]`;
const OCTET = "(25[0-5]|(2[0-4]|1[0-9]|[1-9])?[0-9])";
const IS_IPV4 = `^(${OCTET}[.]){3}${OCTET}/(3[0-2]|[12]?[0-9])$`;
const IS_IPV6 = "^([0-9a-f]{1,4}|:):[0-9a-f:]*/(12[0-8]|1[01][0-9]|[1-9]?[0-9])$";
/** Runs of two or more zero groups, the longest first. */
const RUNS = `[${Array.from({ length: 7 }, (_, i) => `':${"0:".repeat(8 - i)}'`).join(", ")}]`;

interface Variable {
  readonly name: string;
  readonly expression: string;
}

/**
 * Returns variables for a prefix: `NAMELength`, `NAMEBits` (the address in binary digits; empty if the text is not a prefix) and
 * `NAMECanonical` (the canonical text of RFC 5952).
 * @param text a CEL expression for its text
 */
export function prefixVariables(name: string, text: string): readonly Variable[] {
  const address = `variables.${name}Address`;
  const half = (i: number): string =>
    `variables.${name}Halves[${i}].split(':').filter(g, g != '').map(g, ('0000' + g).substring(size(g))).join('')`;
  const hex = `variables.${name}Hex`;
  const groups =
    `[0, 4, 8, 12, 16, 20, 24, 28].map(i, ${hex}.substring(i, i + 4)).map(g, g == '0000' ? '0' : ` +
    "(g.startsWith('000') ? g.substring(3) : (g.startsWith('00') ? g.substring(2) : (g.startsWith('0') ? g.substring(1) : g)))).join(':')";
  const runs = `${RUNS}.filter(r, variables.${name}Groups.contains(r))`;
  const short = `variables.${name}Short`;
  return [
    { name: `${name}Text`, expression: `string(${text}).lowerAscii()` },
    { name: `${name}Is4`, expression: `variables.${name}Text.matches('${IS_IPV4}')` },
    { name: `${name}Is6`, expression: `variables.${name}Text.matches('${IS_IPV6}')` },
    { name: `${name}Address`, expression: `variables.${name}Text.split('/')[0]` },
    {
      name: `${name}Length`,
      expression: `variables.${name}Is4 || variables.${name}Is6 ? int(variables.${name}Text.split('/')[1]) : -1`,
    },
    // The digits before and after `::`.
    { name: `${name}Halves`, expression: `${address}.contains('::') ? ${address}.split('::') : [${address}, '']` },
    { name: `${name}Left`, expression: half(0) },
    { name: `${name}Right`, expression: half(1) },
    {
      name: `${name}Hex`,
      expression:
        `variables.${name}Left + (size(variables.${name}Left + variables.${name}Right) < 32 && ${address}.contains('::') ? ` +
        `'${"0".repeat(32)}'.substring(size(variables.${name}Left + variables.${name}Right)) : '') + variables.${name}Right`,
    },
    {
      name: `${name}Bits`,
      expression:
        `variables.${name}Is4 ? ${address}.split('.').map(o, ${NIBBLES}[int(o) / 16] + ${NIBBLES}[int(o) % 16]).join('') : ` +
        `(variables.${name}Is6 && size(${hex}) == 32 ? ${hex}.split('').map(d, ${NIBBLES}['0123456789abcdef'.indexOf(d)]).join('') : '')`,
    },
    { name: `${name}Groups`, expression: `':' + ${groups} + ':'` },
    {
      name: `${name}Short`,
      expression: `size(${runs}) == 0 ? variables.${name}Groups : variables.${name}Groups.replace(${runs}[0], '::', 1)`,
    },
    {
      name: `${name}Canonical`,
      expression:
        `variables.${name}Is4 ? variables.${name}Text : (${short}.startsWith('::') ? ${short} : ${short}.substring(1))` +
        `.substring(0, size(${short}) - (${short}.startsWith('::') ? 0 : 1) - (${short}.endsWith('::') ? 0 : 1)) + '/' + string(variables.${name}Length)`,
    },
  ];
}
