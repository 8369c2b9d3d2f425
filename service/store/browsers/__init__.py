"""Logins in browsers, and the authorization requests that wait for an answer there."""
