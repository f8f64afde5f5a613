// What other rooms may use of the CNI plugin: the service a node agent runs, and the facts both sides must agree on.
export { startCniService, withServiceRates } from "./service/service.ts";
export { keepTokenFresh } from "./kubernetes/token-refresh.ts";
