// Measures validating 100,000 policies with two rules each, and loading the schemas at the start of a command. The reference is
// parsing the same policies from JSON, which is always necessary.
import { loadSchemas, type Resource } from "../src/model/index.ts";

const started = performance.now();
const { loadSchema } = await loadSchemas();
const schema = await loadSchema("NetworkPolicy");
schema.validate(policy(0), "create");
console.log(`load schemas and validate one policy: ${(performance.now() - started).toFixed(1)} ms`);

for (const mode of ["create", "stored"] as const)
  for (const size of [10_000, 100_000]) {
    const policies = Array.from({ length: size }, (_, i) => policy(i));
    const start = performance.now();
    let bad = 0;
    for (const one of policies) if (!schema.validate(one, mode).ok) bad++;
    const ms = performance.now() - start;
    const texts = policies.map((one) => JSON.stringify(one));
    const readingStart = performance.now();
    for (const text of texts) JSON.parse(text);
    const readMs = performance.now() - readingStart;
    console.log(
      `validate ${size} policies (${mode}): ${ms.toFixed(0)} ms, ${((1000 * ms) / size).toFixed(1)} µs each, ${bad} refused;` +
        ` parsing their JSON ${readMs.toFixed(0)} ms, ratio ${(ms / readMs).toFixed(1)}`,
    );
  }

function policy(i: number): Resource {
  return {
    apiVersion: "projectcalico.org/v3",
    kind: "NetworkPolicy",
    metadata: { name: `policy-${i}`, namespace: `team-${i % 100}`, labels: { app: `app-${i % 50}`, owner: "net" } },
    spec: {
      order: 100 + (i % 7),
      selector: `app == 'app-${i % 500}' && has(tier)`,
      types: ["Ingress", "Egress"],
      ingress: [
        {
          action: "Allow",
          protocol: "TCP",
          source: { selector: `role in {'front', 'r${i % 100}'}`, namespaceSelector: "team == 'x'" },
          destination: { ports: [80, 443, "8000:8100", "http"] },
        },
      ],
      egress: [
        {
          action: "Allow",
          protocol: "UDP",
          destination: { nets: [`10.${i % 200}.0.0/16`, "192.168.0.0/24"], ports: [53] },
        },
      ],
    },
  };
}
