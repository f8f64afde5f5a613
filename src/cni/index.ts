// What other rooms may use of the CNI plugin: the service a node agent runs, and the facts both sides must agree on.
export { SERVICE_SOCKET, startCniService, withServiceRates } from "./service.ts";
export { SILENCE_SECONDS } from "./service-client.ts";
export { keepTokenFresh } from "./token-refresh.ts";
