// A web server's client with openid-client: code flow with PKCE, refresh, userinfo and revocation.
import * as client from "openid-client";

const server = await client.discovery(new URL("http://127.0.0.1:8000"), "web-shop", "web-shop-secret", undefined, {
  algorithm: "oauth2", // without it, the library asks for openid-configuration
  execute: [client.allowInsecureRequests], // only for http
});
const expectedState = client.randomState();
const pkceCodeVerifier = client.randomPKCECodeVerifier();
export const login = client.buildAuthorizationUrl(server, {
  redirect_uri: "http://127.0.0.1:9000/callback",
  scope: "realm:main role:enduser",
  state: expectedState,
  code_challenge: await client.calculatePKCECodeChallenge(pkceCodeVerifier),
  code_challenge_method: "S256",
}).href;

export async function callback(address) {
  const tokens = await client.authorizationCodeGrant(server, new URL(address), { expectedState, pkceCodeVerifier });
  return await client.refreshTokenGrant(server, tokens.refresh_token);
}
export const getUser = (tokens) => client.fetchUserInfo(server, tokens.access_token, client.skipSubjectCheck); // .sub
export const logOut = (tokens) => client.tokenRevocation(server, tokens.refresh_token);
