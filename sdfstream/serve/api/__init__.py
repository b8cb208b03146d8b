"""The read API over HTTP: lists, the stream of changes, health, figures for Prometheus (decision 0026).

Read `resources` (what there is) with `items`, `parameters` and `cursor`; `picture` (what answers are made of); `roles`,
`callers_io`, `peer` and `tokens_io` (who may ask); `stream` and `follow_io` (what changes); `openapi`; `figures`;
`app_io` (the application), `pictures_io` (now and then), `server_io` (the server).
"""
